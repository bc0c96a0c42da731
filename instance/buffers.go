package instance

import "sync"

// buffers pools memory for the bodies and inputs of batches. Otherwise every batch
// would leave its large buffers to the garbage collector.
type buffers struct{ pool sync.Pool }

// get returns a buffer of the given length; its content is arbitrary.
func (b *buffers) get(length int) *[]byte {
	if lent, ok := b.pool.Get().(*[]byte); ok && cap(*lent) >= length {
		*lent = (*lent)[:length]
		return lent
	}
	fresh := make([]byte, length)
	return &fresh
}

// put returns a buffer to the pool. Nothing may refer to it any more.
func (b *buffers) put(buffer *[]byte) { b.pool.Put(buffer) }
