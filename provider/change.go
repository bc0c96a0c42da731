package provider

import (
	"net/http"

	"github.com/faas-infer/faas-infer/provider/web"
)

// readChange reads the body of a route that changes something; what is the
// object that the route expects, for the error.
func (s *Server) readChange(w http.ResponseWriter, r *http.Request, what string, value any) error {
	text, err := s.changeText(w, r, maxSystemBody)
	if err != nil {
		return err
	}
	return web.ParseJSON(text, what, value)
}

// changeText reads a body of at most limit bytes. No change is taken while the
// provider shuts down.
func (s *Server) changeText(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if s.inFlight.Closed() {
		return nil, errDraining
	}
	s.bodies.Limit(w)
	text, err := web.ReadText(w, r, limit)
	if err != nil {
		// What is left of the body is not waited for.
		w.Header().Set("Connection", "close")
		return nil, err
	}
	web.Unlimit(w)
	return text, nil
}
