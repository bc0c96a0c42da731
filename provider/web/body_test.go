package web

import (
	"errors"
	"io"
	"net/http/httptest"
	"testing"
	"time"
)

// A header that promises a large body takes no memory for it. Memory follows the bytes that
// have come.
func TestPromisedBytesAreNotHeld(t *testing.T) {
	const promised = 32 << 20
	for _, length := range []int64{promised, -1} {
		s := NewBodyReader(promised, time.Minute, 4*promised)
		var held []int64
		var growth int64 = sizedGrowth
		if length < 0 {
			growth = chunkedGrowth
		}
		come := int64(0)
		r := httptest.NewRequest("POST", "/", readerFunc(func(p []byte) (int, error) {
			held = append(held, s.Held())
			if limit := max(onTrust, growth*come); s.Held() > limit {
				t.Errorf("after %d bytes %d are held, more than %d", come, s.Held(), limit)
			}
			if come >= 1<<20 {
				return 0, io.ErrUnexpectedEOF
			}
			come += int64(len(p))
			return len(p), nil
		}))
		r.ContentLength = length
		var refused *Error
		if _, err := s.Read(httptest.NewRecorder(), r, "f", 0); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("error %v", err)
		}
		if held[0] != onTrust {
			t.Errorf("%d bytes are held before any have come", held[0])
		}
		if s.Held() != 0 {
			t.Errorf("%d bytes are held after it", s.Held())
		}
	}
}

// Growing copies fewer than twice the body's bytes.
func TestGrowthIsAmortised(t *testing.T) {
	for _, size := range []int64{1, onTrust, onTrust + 1, 1 << 20, 24 << 20, 32 << 20} {
		for _, length := range []int64{size, -1} {
			s := NewBodyReader(32<<20, time.Minute, 0)
			var copied, last int64
			r := httptest.NewRequest("POST", "/", io.LimitReader(readerFunc(func(p []byte) (int, error) {
				if held := s.Held(); held != last { // A new buffer: the one before was full.
					copied += last
					last = held
				}
				return len(p), nil
			}), size))
			r.ContentLength = length
			b, err := s.Read(httptest.NewRecorder(), r, "f", 0)
			if err != nil || int64(len(b.Content())) != size || copied >= 2*size {
				t.Errorf("%d bytes of length %d: %d, %v, %d bytes copied", size, length, len(b.Content()), err, copied)
			}
			b.Free()
			b.Release()
			if s.Held() != 0 {
				t.Errorf("%d bytes are held", s.Held())
			}
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
