package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	// onTrust is the most bytes allocated for a body before any of it has come. After
	// that, a body's buffer has at most trustFactor times the bytes that have come. A
	// client therefore cannot take memory with a header alone.
	onTrust     = 64 << 10
	trustFactor = 16
	// firstChunk is the size in bytes of the first buffer of a body of unknown length.
	// The stock gateway forwards every body without its length.
	firstChunk = 16 << 10
)

// BodyReader reads bodies of at most Max bytes. A client may take Timeout to send one.
type BodyReader struct {
	Max     int64
	Timeout time.Duration
	held    budget
}

// NewBodyReader returns a reader whose bodies together hold no more than held bytes.
func NewBodyReader(maximum int64, timeout time.Duration, held int64) *BodyReader {
	return &BodyReader{Max: maximum, Timeout: timeout, held: budget{limit: held}}
}

// Held returns the number of bytes held now.
func (s *BodyReader) Held() int64 { return s.held.held.Load() }

// Release gives back a body's share of the bytes held, when its request has ended. The
// caller frees the buffer if nothing refers to it any more.
func (s *BodyReader) Release(b Body) { s.held.give(b.charge) }

// budget bounds the bytes of all functions' request bodies that are held at the same
// time: those being read, waiting, or being answered.
type budget struct {
	limit int64
	held  atomic.Int64
}

var errHeld = Refuse(http.StatusServiceUnavailable, "the waiting requests already take all the memory allowed (--max-held); try again in a moment")

func (b *budget) take(n int64) error {
	if b.held.Add(n) > b.limit {
		b.held.Add(-n)
		return errHeld
	}
	return nil
}

func (b *budget) give(n int64) { b.held.Add(-n) }

// Body is a request's body. Its buffer is nil if the request has no body. charge is the
// number of bytes that it counts in the budget until the request ends.
type Body struct {
	*BodyBuffer
	charge int64
}

// Read reads a request's whole body within the limits on size and time.
func (s *BodyReader) Read(w http.ResponseWriter, r *http.Request) (Body, error) {
	n := r.ContentLength
	switch {
	case n == 0:
		return Body{}, nil
	case n > s.Max:
		return Body{}, tooLarge(s.Max)
	}
	s.Limit(w)
	var b Body
	var err error
	if n > 0 {
		b.charge = n
		b.BodyBuffer, err = s.readSized(r.Body, int(n))
	} else {
		b, err = s.readChunks(r.Body)
	}
	if err != nil {
		return Body{}, unreadable(err)
	}
	Unlimit(w)
	return b, nil
}

// readSized reads a body whose length is known.
func (s *BodyReader) readSized(from io.Reader, n int) (*BodyBuffer, error) {
	if err := s.held.take(int64(n)); err != nil {
		return nil, err
	}
	b := newBuffer(min(n, onTrust))
	for done := 0; ; {
		if _, err := io.ReadFull(from, b.Bytes[done:]); err != nil {
			b.Free()
			s.held.give(int64(n))
			return nil, err
		}
		if done = len(b.Bytes); done == n {
			return b, nil
		}
		b = b.grow(done, min(n, trustFactor*done))
	}
}

// readChunks reads a body of unknown length into ever larger buffers.
func (s *BodyReader) readChunks(from io.Reader) (_ Body, err error) {
	most := s.Max + 1
	var b Body
	defer func() {
		if err != nil {
			b.Free()
			s.held.give(b.charge)
		}
	}()
	for used, size := 0, min(firstChunk, most); ; size = min(2*size, most) {
		if err := s.held.take(size - b.charge); err != nil {
			return Body{}, err
		}
		b.charge = size
		b.BodyBuffer = b.grow(used, int(size))
		for used < len(b.Bytes) {
			n, err := from.Read(b.Bytes[used:])
			used += n
			if int64(used) > s.Max {
				return Body{}, tooLarge(s.Max)
			}
			if errors.Is(err, io.EOF) {
				return s.fit(b, used), nil
			}
			if err != nil {
				return Body{}, err
			}
		}
	}
}

// fit cuts a body down to its used bytes. A body that uses at most a quarter of its
// buffer moves to a smaller one, because many small requests must not hold large buffers.
func (s *BodyReader) fit(b Body, used int) Body {
	if used > len(b.Bytes)/4 {
		b.Bytes = b.Bytes[:used]
		return b
	}
	s.held.give(b.charge - int64(used))
	return Body{BodyBuffer: b.grow(used, used), charge: int64(used)}
}

// readDeadliner is a response that can set a deadline for reading its request, as
// those of net/http can.
type readDeadliner interface{ SetReadDeadline(time.Time) error }

// Limit gives the client Timeout to send the rest of its request. Call Unlimit
// afterwards: net/http goes on reading, to notice a client that hangs up.
func (s *BodyReader) Limit(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Now().Add(s.Timeout)) // It fails if the connection is gone; then so does reading.
	}
}

// LimitRest, deferred, limits the time for the rest of a body that a handler has not
// read: net/http reads it before it answers.
func (s *BodyReader) LimitRest(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		s.Limit(w)
	}
}

// Unlimit takes the time limit away.
func Unlimit(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Time{})
	}
}

func tooLarge(limit int64) error {
	return Refuse(http.StatusRequestEntityTooLarge, "the request body is larger than %d bytes, the limit of this route", limit)
}

// unreadable returns the answer to a request whose body could not be read.
func unreadable(err error) error {
	var known HTTPError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refuse(http.StatusRequestTimeout, "the request body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		err = errors.New("it ended early")
	}
	return Refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
}

// ReadText reads a request's body of at most limit bytes. If the Content-Length is
// larger, it refuses before it reads anything.
func ReadText(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil
}
