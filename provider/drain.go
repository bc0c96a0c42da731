package provider

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// errDraining answers requests that come while the provider shuts down.
var errDraining = web.Refuse(http.StatusServiceUnavailable, "the provider is shutting down; try again in a moment")

// Leave begins the end of service while other providers go on. From now on /healthz answers 503,
// and each answer closes its connection: the client's next one reaches another provider.
// Requests are served as before.
func (s *Server) Leave() { s.leaving.Store(true) }

// Shutdown ends service. From now on /healthz, invocations and changes answer 503, and
// followed logs end. Requests in flight are finished. Shutdown returns when none is left,
// or with ctx's error. Shut down the HTTP server that carries the handler after it, and
// then the controller.
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

// unlessDraining serves h until the provider shuts down, and 503 from then on. Shutdown
// waits for requests that h is serving.
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
