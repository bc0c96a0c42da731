package web

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// A body that has been read is taken over without a copy, and cannot be read after it is closed.
func TestReadBody(t *testing.T) {
	reader := NewBodyReader(100, time.Minute, 1<<20)
	r := httptest.NewRequest("POST", "/", strings.NewReader("ab12345"))
	held, err := reader.Read(nil, r, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	body := NewReadBody(&held, held.Content()[2:])
	r.Body, r.ContentLength = body, 5
	taken, err := reader.Read(nil, r, "f", 10)
	if err != nil || string(taken.Content()) != "12345" || held.BodyBuffer != nil || held.Held() != 0 || taken.Held() != 17 {
		t.Errorf("%q is taken over, with %d bytes held, %v", taken.Content(), taken.Held(), err)
	}
	taken.Release()
	if first, err := io.ReadAll(io.LimitReader(body, 2)); err != nil || string(first) != "12" {
		t.Errorf("its beginning is %q, %v", first, err)
	}
	_ = body.Close()
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after it is closed: %v", err)
	}
	if reader.Held() != 0 {
		t.Errorf("%d bytes are held", reader.Held())
	}
}

// The rest of a refused body is read over HTTP/2, up to a bound: curl loses answers to streams that are reset.
func TestRestOverHTTP2(t *testing.T) {
	b := &BodyReader{Timeout: time.Second}
	for _, c := range []struct{ protocol, size, left int }{{1, 1000, 1000}, {2, 1000, 0}, {2, maxRest + 10, 10}} {
		body := strings.NewReader(strings.Repeat("x", c.size))
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ProtoMajor = c.protocol
		if b.LimitRest(httptest.NewRecorder(), r); body.Len() != c.left {
			t.Errorf("HTTP/%d: %d of %d bytes are left, not %d", c.protocol, body.Len(), c.size, c.left)
		}
	}
}
