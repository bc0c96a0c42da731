package provider

import (
	"math/bits"
	"sync"
)

// buffer holds one request's body. Buffers above smallestBuffer bytes come
// from pools, as large bodies would otherwise keep the collector busy.
type buffer struct {
	bytes []byte
	class int
}

// Pooled buffers have capacities of powers of two, from smallestBuffer to
// largestBuffer; larger ones are too rare to keep.
const (
	smallestBuffer = 1 << 10
	largestBuffer  = 1 << 23
	unpooled       = 0
)

// pools holds a class's buffers at the logarithm of their capacity.
var pools [24]sync.Pool

// newBuffer returns a buffer of n bytes of any content.
func newBuffer(n int) *buffer {
	if n < smallestBuffer || n > largestBuffer {
		return &buffer{bytes: make([]byte, n)}
	}
	class := bits.Len(uint(n - 1))
	b, ok := pools[class].Get().(*buffer)
	if !ok {
		b = &buffer{bytes: make([]byte, 1<<class), class: class}
	}
	b.bytes = b.bytes[:n]
	return b
}

// grow returns a buffer of n bytes that begins with b's first used ones, in the
// place of b.
func (b *buffer) grow(used, n int) *buffer {
	larger := newBuffer(n)
	if b != nil {
		copy(larger.bytes, b.bytes[:used])
		b.free()
	}
	return larger
}

// free gives the buffer back; nothing may refer to its bytes any more.
func (b *buffer) free() {
	if b != nil && b.class != unpooled {
		pools[b.class].Put(b)
	}
}
