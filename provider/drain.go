package provider

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// errDraining answers what comes while the provider shuts down.
var errDraining = web.Refuse(http.StatusServiceUnavailable, "the provider is shutting down; try again in a moment")

// Shutdown ends service: from now on /healthz answers 503 and so do invocations
// and changes, logs are not followed any more, and what is in flight is finished.
// It returns when nothing is in flight any more, or with ctx's error. The HTTP server that carries the
// handler is to be shut down after it, the controller after that.
func (s *Server) Shutdown(ctx context.Context) error {
	started := time.Now()
	select {
	case <-s.inFlight.Close():
		s.log.Info().Dur("took", time.Since(started)).Msg("drained")
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests are still in flight: %w", s.inFlight.Inside(), ctx.Err())
	}
}

// unlessDraining is h as long as the provider does not shut down, which waits for
// it.
func unlessDraining(inFlight *web.Gate, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !inFlight.Enter() {
			web.WriteError(w, errDraining)
			return
		}
		defer inFlight.Leave()
		h.ServeHTTP(w, r)
	})
}
