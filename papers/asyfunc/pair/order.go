package pair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ShadowsPath is the body's route for the addresses of its shadows.
const ShadowsPath = "/v1/shadows"

// RelayPort is the port at which a shadow in a pod takes connections of bodies.
const RelayPort = 8090

// BodyEnv, if set in an instance's environment, makes it a body if it finds a prepared copy of its model on
// its node. A program that is older than the provider ignores a variable; it would refuse a flag.
const BodyEnv = "FAAS_INFER_BODY"

// maxOrder bounds the body of a request to it in bytes.
const maxOrder = 64 << 10

// Status says with whom a body is paired.
type Status struct {
	Order
	Shadows []ShadowStatus `json:"shadows"`
	// Why is the reason why the model cannot be divided, "" if it can.
	Why string `json:"why,omitempty"`
	// Blocks is the number of blocks of the model.
	Blocks int `json:"blocks"`
	// Row is the time of a row of the whole model on the body, in seconds, 0 if it is unknown.
	Row float64 `json:"row_s"`
	// Counted is since the body's start. Weights is the size of the model's weights, which it maps, in
	// bytes.
	Counted Counts `json:"counted"`
	Weights int64  `json:"weights"`
}

// ShadowStatus is one shadow: State is "connected", "not connected", or why it is not used. Rows
// are in seconds.
type ShadowStatus struct {
	Address
	State string  `json:"state"`
	Row   float64 `json:"row_s"`
}

// slowest is how many times as long as a row of the whole model on its body a shadow's row may take.
const slowest = 4

// Useless reports whether a body cannot use a shadow: it is not connected, or so slow that it hangs
// (a shadow's row is assumed to take twice as long after each that was late).
func (s *Status) Useless(a Address) bool {
	for _, x := range s.Shadows {
		if x.Address == a {
			return x.State != connectedState || s.Row > 0 && x.Row > slowest*s.Row
		}
	}
	return true
}

// Status returns the current pairing.
func (b *Body) Status() Status {
	b.mu.Lock()
	p := b.now
	b.mu.Unlock()
	s := Status{Shadows: []ShadowStatus{}, Row: b.perRow().Seconds(), Counted: b.metrics.counts(), Weights: b.prepared.DividedWeights()}
	if b.segments != nil {
		s.Blocks = b.segments.Blocks()
	}
	if b.why != nil {
		s.Why = b.why.Error()
	}
	if p == nil {
		return s
	}
	s.Order = p.order
	for _, o := range p.partners {
		_, row := o.ready()
		s.Shadows = append(s.Shadows, ShadowStatus{o.address, o.status(), row})
	}
	return s
}

// Handler serves a body: the requests of an instance's server, and at [ShadowsPath] PUT with an
// [Order], which answers 204 or 400 with the reason, and GET with the [Status].
func (b *Body) Handler(server http.Handler) http.Handler { return handler(b, server) }

// Alone serves an instance that cannot be a body: the requests of its server, and at [ShadowsPath] the
// answers of a body without shadows that refuses any, with why as the reason.
func Alone(server http.Handler, why error) http.Handler { return handler(alone{why}, server) }

// alone takes no shadows.
type alone struct{ why error }

func (a alone) Status() Status { return Status{Shadows: []ShadowStatus{}, Why: a.why.Error()} }

func (a alone) Set(o Order) error {
	if len(o.Shadows) > 0 {
		return a.why
	}
	return nil
}

// ordered carries out orders.
type ordered interface {
	Status() Status
	Set(o Order) error
}

func handler(b ordered, server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == ShadowsPath {
			serveOrder(b, w, r)
			return
		}
		server.ServeHTTP(w, r)
	})
}

func serveOrder(b ordered, w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		answer(w, http.StatusOK, b.Status())
	case http.MethodPut:
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOrder))
		if err != nil {
			status := http.StatusBadRequest
			if errors.As(err, new(*http.MaxBytesError)) {
				status = http.StatusRequestEntityTooLarge
			}
			answer(w, status, map[string]string{"error": err.Error()})
			return
		}
		var o Order
		if err = json.Unmarshal(text, &o); err == nil {
			err = b.Set(o)
		}
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, PUT")
		answer(w, http.StatusMethodNotAllowed, map[string]string{"error": fmt.Sprintf("%s takes PUT and GET, not %s", ShadowsPath, r.Method)})
	}
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // The client may have hung up.
}
