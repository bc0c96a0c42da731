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
	// stallPart is how many bytes of an answer a client must take within the time for it.
	stallPart = 256 << 10
)

// errStreams refuses a stream that finds no room among those in progress.
var errStreams = Unavailable(time.Second, "the HTTP/2 streams in progress already take all the memory allowed; try again in a moment")

// serveStream serves one HTTP/2 request. c is its connection, nil if that is not bounded.
func (s *Connections) serveStream(w http.ResponseWriter, r *http.Request, c *connection, handler http.Handler) {
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
		handler.ServeHTTP(w, r)
		return
	}
	answer, body := newStalling(w, s.options.AnswerTimeout), r.Body
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
	limit   time.Duration
	stalled *time.Timer
	// restLeft: the answer does not wait for the rest of the request's body.
	restLeft bool
	// mu guards ended: net/http's answer must not be used after its handler.
	mu    sync.Mutex
	ended bool
}

func newStalling(w http.ResponseWriter, limit time.Duration) *stalling {
	s := &stalling{ResponseWriter: w, control: http.NewResponseController(w), limit: limit}
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
	s.stalled.Reset(s.limit)
	defer s.stalled.Stop()
	return s.control.Flush()
}

// SetReadDeadline is part of readDeadliner.
func (s *stalling) SetReadDeadline(t time.Time) error { return s.control.SetReadDeadline(t) }

// Unwrap is for [http.ResponseController].
func (s *stalling) Unwrap() http.ResponseWriter { return s.ResponseWriter }
