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
	// onTrust is how much is allocated, at most, for a body of which nothing
	// has come yet, in bytes; after that a body has at most trustFactor times
	// what has come, so that a client cannot take memory by a header alone.
	onTrust     = 64 << 10
	trustFactor = 16
	// firstChunk is the first buffer of a body whose length is not known. The
	// stock gateway forwards every body like this.
	firstChunk = 16 << 10
)

// BodyReader reads bodies of at most Max bytes, for each of which a client may take Timeout.
type BodyReader struct {
	Max     int64
	Timeout time.Duration
	held    budget
}

// NewBodyReader returns a reader whose bodies together hold no more than held bytes.
func NewBodyReader(most int64, timeout time.Duration, held int64) *BodyReader {
	return &BodyReader{Max: most, Timeout: timeout, held: budget{limit: held}}
}

// Held is how many bytes are held now.
func (s *BodyReader) Held() int64 { return s.held.held.Load() }

// Release ends a body's request: what it counted for is given back. The buffer is the
// caller's to free, where nothing refers to it any more.
func (s *BodyReader) Release(b Body) { s.held.give(b.charge) }

// budget bounds the bytes of request bodies that are held at the same time:
// those of all functions, on their way in, waiting and being answered.
type budget struct {
	limit int64
	held  atomic.Int64
}

var errHeld = Refuse(http.StatusServiceUnavailable, "the requests that wait already take as much memory as they may; try again in a moment")

func (b *budget) take(n int64) error {
	if b.held.Add(n) > b.limit {
		b.held.Add(-n)
		return errHeld
	}
	return nil
}

func (b *budget) give(n int64) { b.held.Add(-n) }

// Body is a request's body, of no buffer if it has none, with what it counts
// for in the budget until the request ends.
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

// readChunks reads a body whose length is not known, into ever larger buffers.
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

// fit cuts a body down to what was used of it; one that is much too large
// moves, so that many small requests do not wait in large buffers.
func (s *BodyReader) fit(b Body, used int) Body {
	if used > len(b.Bytes)/4 {
		b.Bytes = b.Bytes[:used]
		return b
	}
	s.held.give(b.charge - int64(used))
	return Body{BodyBuffer: b.grow(used, used), charge: int64(used)}
}

// readDeadliner is a response whose request has a deadline for being read, as
// those of net/http.
type readDeadliner interface{ SetReadDeadline(time.Time) error }

// Limit gives the client Timeout to send the rest of its request. It
// is undone by Unlimit: reading goes on all the time, to notice a client
// that hangs up.
func (s *BodyReader) Limit(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Now().Add(s.Timeout)) // It fails if the connection is gone; then so does reading.
	}
}

// LimitRest, deferred, limits the time for what a handler has left of a body:
// net/http reads on before it answers.
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

// unreadable is the answer to a request whose body could not be read.
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

// ReadText reads a request's body of at most limit bytes. A length that is too
// large by the header is refused before anything is asked of the client.
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
