package web

import "testing"

func TestBuffers(t *testing.T) {
	for _, n := range []int{1, 1023, 1024, 1025, 4097, 8192, 1 << 20, 1<<20 + 1, 1 << 23, 1<<23 + 1} {
		for range 2 {
			b := newBuffer(n)
			if len(b.Bytes) != n {
				t.Errorf("newBuffer(%d) has %d bytes", n, len(b.Bytes))
			}
			b.Free()
		}
	}
	(*BodyBuffer)(nil).Free()
}
