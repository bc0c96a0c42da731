package web

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

const (
	// streamCost is about what a stream takes in bytes beside its body: a goroutine, buffers and its head.
	streamCost = 16 << 10
	// streamStack is about how many bytes of stack a stream's handler needs.
	streamStack = 8 << 10
	// stallPart is how many bytes of an answer a client must take within the time for it.
	stallPart = 256 << 10
)

// errStreams refuses a stream that finds no room among those in progress.
var errStreams = Unavailable(time.Second, "the HTTP/2 streams in progress already take all the memory allowed; try again in a moment")

// growStack lets the stack of a stream's new goroutine grow once, while it is small. Otherwise it grows three times
// while deep calls are on it, and copying these took an eighth of the processor time of a call of gRPC.
//
//go:noinline
func growStack(at int) byte {
	var space [streamStack]byte
	return space[at] // at is not a constant, so that the compiler does not drop the space.
}

// serveStream serves one HTTP/2 request. c is its connection, nil if that is not bounded.
func (s *Connections) serveStream(w http.ResponseWriter, r *http.Request, c *connection, handler http.Handler) {
	growStack(r.ProtoMajor)
	if c != nil {
		c.streams.Add(1)
		c.begin()
		defer c.leave(r)
	}
	charge := s.heads.ChargeAddress(r.RemoteAddr)
	if charge.Take(streamCost) != nil {
		WriteError(w, errStreams)
		return
	}
	defer charge.Release()
	if s.options.AnswerTimeout == 0 {
		if c != nil {
			c.coalescer.flushing.Add(1) // For good: nobody sees when it flushes.
		}
		handler.ServeHTTP(w, r)
		return
	}
	answer, body := newStalling(w, c, s.options.AnswerTimeout), r.Body
	defer answer.end()
	handler.ServeHTTP(answer, r)
	if answer.restLeft {
		answer.lingerFor(body)
	}
}

// leave ends the handler of a stream. net/http tells when the last stream has ended, but a handler may
// begin after its client has reset the stream.
func (c *connection) leave(r *http.Request) {
	if c.streams.Add(-1) > 0 || r.Context().Err() == nil {
		return
	}
	c.end()
	if c.streams.Load() > 0 {
		c.begin()
	}
}

// stalling is an HTTP/2 answer whose stream is reset when the client takes nothing of it for limit. Other
// streams of the connection may go on meanwhile.
type stalling struct {
	http.ResponseWriter
	control *http.ResponseController
	// bound is the connection, nil if that is not bounded. flushed: the handler has flushed.
	bound   *connection
	flushed bool
	limit   time.Duration
	stalled *time.Timer
	// restLeft: the answer does not wait for the rest of the request's body.
	restLeft bool
	// mu guards flushed, late, which ends reading at the deadline for it, nil before the first, and ended:
	// net/http's answer must not be used after its handler.
	mu    sync.Mutex
	late  *time.Timer
	ended bool
}

func newStalling(w http.ResponseWriter, bound *connection, limit time.Duration) *stalling {
	s := &stalling{ResponseWriter: w, control: http.NewResponseController(w), bound: bound, limit: limit}
	s.stalled = time.AfterFunc(limit, s.reset)
	s.stalled.Stop()
	return s
}

// reset resets the stream, unless its handler has ended.
func (s *stalling) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.control.SetWriteDeadline(time.Unix(1, 0)) // It fails if the stream is over.
	}
}

// end ends the handler. net/http still sends what it has buffered.
func (s *stalling) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.flushed {
		s.bound.coalescer.flushing.Add(-1)
	}
	if s.late != nil {
		s.late.Stop()
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.limit)) // It fails if the stream is over.
}

// leaveRest lets a stream's answer go before the rest of its request's body has come.
func leaveRest(w http.ResponseWriter) {
	for w != nil {
		if s, ok := w.(*stalling); ok {
			s.restLeft = true
			return
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = inner.Unwrap()
	}
}

// lingerFor sends the whole answer, and reads on until the client has stopped to send, for [duplex.Linger] at most. Then
// net/http ends the stream, with RST_STREAM(NO_ERROR) if the body has not ended (RFC 9113, section 8.1). curl 7.88 and
// others lose an answer that comes together with that.
func (s *stalling) lingerFor(body io.Reader) {
	s.Flush()
	_ = s.SetReadDeadline(time.Now().Add(duplex.Linger)) // It fails if the stream is over; then so does reading.
	_, _ = io.Copy(io.Discard, body)
}

// Write implements http.ResponseWriter.
func (s *stalling) Write(p []byte) (done int, err error) {
	defer s.stalled.Stop()
	for first := true; first || done < len(p) && err == nil; first = false {
		s.stalled.Reset(s.limit)
		var n int
		n, err = s.ResponseWriter.Write(p[done:min(done+stallPart, len(p))])
		done += n
	}
	return done, err
}

// Flush implements http.Flusher.
func (s *stalling) Flush() { _ = s.FlushError() }

// FlushError sends what is buffered, for [http.ResponseController].
func (s *stalling) FlushError() error {
	s.noteFlush()
	s.stalled.Reset(s.limit)
	defer s.stalled.Stop()
	return s.control.Flush()
}

// noteFlush keeps the connection from letting writes wait, until the handler has ended.
func (s *stalling) noteFlush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound != nil && !s.flushed && !s.ended {
		s.flushed = true
		s.bound.coalescer.flushing.Add(1)
	}
}

// SetReadDeadline is part of readDeadliner. It has a timer of its own: net/http would pass each deadline through the
// goroutine of the connection, which costs more than a short body.
func (s *stalling) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := time.Until(t)
	switch {
	case s.ended:
		return http.ErrBodyReadAfterClose
	case t.IsZero():
		if s.late != nil {
			s.late.Stop()
		}
	case left <= 0:
		return s.control.SetReadDeadline(t)
	case s.late == nil:
		s.late = time.AfterFunc(left, s.stopReading)
	default:
		s.late.Reset(left)
	}
	return nil
}

// stopReading ends the time for reading, unless the handler has ended.
func (s *stalling) stopReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.control.SetReadDeadline(time.Unix(1, 0)) // It fails if the stream is over.
	}
}

// Unwrap is for [http.ResponseController].
func (s *stalling) Unwrap() http.ResponseWriter { return s.ResponseWriter }
