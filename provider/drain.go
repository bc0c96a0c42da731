package provider

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// errDraining answers what comes while the provider shuts down.
var errDraining = refuse(http.StatusServiceUnavailable, "the provider is shutting down; try again in a moment")

// gate counts requests in flight and can be closed: then it lets no more in,
// and tells when the last has left.
type gate struct {
	inside atomic.Int64
	closed atomic.Bool
	// shut is closed with the gate, empty when the last has left then.
	shut, empty         chan struct{}
	shutOnce, emptyOnce sync.Once
}

func newGate() gate { return gate{shut: make(chan struct{}), empty: make(chan struct{})} }

// enter reports whether a request may go in; if so, leave must follow.
func (g *gate) enter() bool {
	// Counted first: whoever sees the gate open is seen by close.
	g.inside.Add(1)
	if g.closed.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.inside.Add(-1) == 0 && g.closed.Load() {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
}

// close lets nothing more in and returns a channel that is closed once all
// have left.
func (g *gate) close() <-chan struct{} {
	g.closed.Store(true)
	g.shutOnce.Do(func() { close(g.shut) })
	if g.inside.Load() == 0 {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
	return g.empty
}

// Shutdown ends service: from now on /healthz answers 503 and so do invocations
// and changes, logs are not followed any more, and what is in flight is finished.
// It returns when nothing is in flight any more, or with ctx's error. The HTTP server that carries the
// handler is to be shut down after it, the controller after that.
func (s *Server) Shutdown(ctx context.Context) error {
	started := time.Now()
	select {
	case <-s.inFlight.close():
		s.log.Info().Dur("took", time.Since(started)).Msg("drained")
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests are still in flight: %w", s.inFlight.inside.Load(), ctx.Err())
	}
}

// unlessDraining is h as long as the provider does not shut down, which waits for
// it.
func (s *Server) unlessDraining(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.inFlight.enter() {
			writeError(w, errDraining)
			return
		}
		defer s.inFlight.leave()
		h.ServeHTTP(w, r)
	})
}
