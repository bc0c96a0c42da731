package provider

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

// budget bounds the bytes of request bodies that are held at the same time:
// those of all functions, on their way in, waiting and being answered.
type budget struct {
	limit int64
	held  atomic.Int64
}

var errHeld = refuse(http.StatusServiceUnavailable, "the requests that wait already take as much memory as they may; try again in a moment")

func (b *budget) take(n int64) error {
	if b.held.Add(n) > b.limit {
		b.held.Add(-n)
		return errHeld
	}
	return nil
}

func (b *budget) give(n int64) { b.held.Add(-n) }

// body is a request's body, of no buffer if it has none, with what it counts
// for in the budget until the request ends.
type body struct {
	*buffer
	charge int64
}

// readBody reads a request's whole body within the limits on size and time.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (body, error) {
	n := r.ContentLength
	switch {
	case n == 0:
		return body{}, nil
	case n > s.maxBody:
		return body{}, tooLarge(s.maxBody)
	}
	s.limitReading(w)
	var b body
	var err error
	if n > 0 {
		b.charge = n
		b.buffer, err = s.readSized(r.Body, int(n))
	} else {
		b, err = s.readChunks(r.Body)
	}
	if err != nil {
		return body{}, unreadable(err)
	}
	unlimitReading(w)
	return b, nil
}

// readSized reads a body whose length is known.
func (s *Server) readSized(from io.Reader, n int) (*buffer, error) {
	if err := s.held.take(int64(n)); err != nil {
		return nil, err
	}
	b := newBuffer(min(n, onTrust))
	for done := 0; ; {
		if _, err := io.ReadFull(from, b.bytes[done:]); err != nil {
			b.free()
			s.held.give(int64(n))
			return nil, err
		}
		if done = len(b.bytes); done == n {
			return b, nil
		}
		b = b.grow(done, min(n, trustFactor*done))
	}
}

// readChunks reads a body whose length is not known, into ever larger buffers.
func (s *Server) readChunks(from io.Reader) (_ body, err error) {
	most := s.maxBody + 1
	var b body
	defer func() {
		if err != nil {
			b.free()
			s.held.give(b.charge)
		}
	}()
	for used, size := 0, min(firstChunk, most); ; size = min(2*size, most) {
		if err := s.held.take(size - b.charge); err != nil {
			return body{}, err
		}
		b.charge = size
		b.buffer = b.grow(used, int(size))
		for used < len(b.bytes) {
			n, err := from.Read(b.bytes[used:])
			used += n
			if int64(used) > s.maxBody {
				return body{}, tooLarge(s.maxBody)
			}
			if errors.Is(err, io.EOF) {
				return s.fit(b, used), nil
			}
			if err != nil {
				return body{}, err
			}
		}
	}
}

// fit cuts a body down to what was used of it; one that is much too large
// moves, so that many small requests do not wait in large buffers.
func (s *Server) fit(b body, used int) body {
	if used > len(b.bytes)/4 {
		b.bytes = b.bytes[:used]
		return b
	}
	s.held.give(b.charge - int64(used))
	return body{buffer: b.grow(used, used), charge: int64(used)}
}

// readDeadliner is a response whose request has a deadline for being read, as
// those of net/http.
type readDeadliner interface{ SetReadDeadline(time.Time) error }

// limitReading gives the client bodyTimeout to send the rest of its request. It
// is undone by unlimitReading: reading goes on all the time, to notice a client
// that hangs up.
func (s *Server) limitReading(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Now().Add(s.bodyTimeout)) // It fails if the connection is gone; then so does reading.
	}
}

// limitRest, deferred, limits the time for what a handler has left of a body:
// net/http reads on before it answers.
func (s *Server) limitRest(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		s.limitReading(w)
	}
}

func unlimitReading(w http.ResponseWriter) {
	if d, ok := w.(readDeadliner); ok {
		_ = d.SetReadDeadline(time.Time{})
	}
}

func tooLarge(limit int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "the request body is larger than %d bytes, the limit of this route", limit)
}

// unreadable is the answer to a request whose body could not be read.
func unreadable(err error) error {
	var known HTTPError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the request body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		err = errors.New("it ended early")
	}
	return refuse(http.StatusBadRequest, "the request body could not be read: %v", err)
}
