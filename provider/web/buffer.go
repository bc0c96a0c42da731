package web

import (
	"math/bits"
	"sync"
)

// BodyBuffer holds one request's body. Buffers above smallestBuffer bytes come
// from pools, as large bodies would otherwise keep the collector busy.
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

// pools holds a class's buffers at the logarithm of their capacity.
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

// grow returns a buffer of n bytes that begins with b's first used ones, in the
// place of b.
func (b *BodyBuffer) grow(used, n int) *BodyBuffer {
	larger := newBuffer(n)
	if b != nil {
		copy(larger.Bytes, b.Bytes[:used])
		b.Free()
	}
	return larger
}

// Free gives the buffer back; nothing may refer to its bytes any more.
func (b *BodyBuffer) Free() {
	if b != nil && b.class != unpooled {
		pools[b.class].Put(b)
	}
}
