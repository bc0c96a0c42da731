package web

import (
	"math/bits"
	"sync"
)

// BodyBuffer holds one request's body. Buffers of smallestBuffer bytes and more come from
// pools, because large bodies would keep the garbage collector busy.
type BodyBuffer struct {
	Bytes []byte
	class int
}

// Pooled buffers have capacities of powers of two, from smallestBuffer to
// largestBuffer; larger ones are too rare to keep.
const (
	smallestBuffer = 1 << 10
	largestBuffer  = 1 << 23
	unpooled       = 0
)

// pools holds the free buffers by the base-2 logarithm of their capacity, their class.
var pools [24]sync.Pool

// newBuffer returns a buffer of n bytes of any content.
func newBuffer(n int) *BodyBuffer {
	if n < smallestBuffer || n > largestBuffer {
		return &BodyBuffer{Bytes: make([]byte, n)}
	}
	class := bits.Len(uint(n - 1))
	b, ok := pools[class].Get().(*BodyBuffer)
	if !ok {
		b = &BodyBuffer{Bytes: make([]byte, 1<<class), class: class}
	}
	b.Bytes = b.Bytes[:n]
	return b
}

// grow returns a buffer of n bytes with a copy of b's first used bytes, and frees b.
func (b *BodyBuffer) grow(used, n int) *BodyBuffer {
	larger := newBuffer(n)
	if b != nil {
		copy(larger.Bytes, b.Bytes[:used])
		b.Free()
	}
	return larger
}

// Free returns the buffer to its pool. Nothing may refer to its bytes any more.
func (b *BodyBuffer) Free() {
	if b != nil && b.class != unpooled {
		pools[b.class].Put(b)
	}
}
