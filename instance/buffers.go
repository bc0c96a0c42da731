package instance

import "sync"

// buffers lends memory for the bodies and inputs of batches, so that large
// ones do not become garbage with every batch.
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

// put takes a buffer back; nothing may refer to it any more.
func (b *buffers) put(buffer *[]byte) { b.pool.Put(buffer) }
