package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/web"
)

// errClass is the answer to a synchronous request with a class.
var errClass = web.Refuse(http.StatusBadRequest, "the header %s is for asynchronous requests only: send the request to %sNAME, or leave the header out", spare.Header, asyncPrefix)

// SpareController is a [Controller] that runs requests on what others leave.
type SpareController interface {
	// Owns reports whether this replica of the provider runs such requests of a function.
	Owns(name string) bool
	// Left returns what a function and its nodes leave, and false if it has no model or is
	// not known.
	Left(name string) (spare.State, bool)
	// InvokeSpare runs a request on an instance that no other request needs. It returns
	// spare.ErrOccupied if there is none. A request in execution is not canceled.
	InvokeSpare(name string, req *frame.Request) (*frame.Response, error)
}

// BestEffort runs the server's best-effort requests.
type BestEffort struct{ *Server }

func (s BestEffort) controller() (SpareController, bool) {
	c, ok := s.Server.controller.(SpareController)
	return c, ok
}

// Serves reports whether a deployed function has a model, also while it is being restored.
func (s BestEffort) Serves(name string) bool {
	if _, ok := s.controller(); !ok {
		return false
	}
	d := queueable(s.Server, name)
	return d != nil && d.Inference.IsInference
}

// Owns reports whether this replica of the provider runs the best-effort requests of a function.
func (s BestEffort) Owns(name string) bool {
	c, ok := s.controller()
	return ok && c.Owns(name)
}

// Left returns what a function and its nodes leave: nothing while it is being restored. The
// error is 404 for an absent function.
func (s BestEffort) Left(name string) (spare.State, error) {
	d, err := s.lookUp(name)
	if err != nil {
		if queueable(s.Server, name) != nil {
			return spare.State{}, nil
		}
		return spare.State{}, err
	}
	c, ok := s.controller()
	if !ok {
		return spare.State{}, nil
	}
	left, _ := c.Left(d.Name)
	return left, nil
}

// InvokeSpare runs a best-effort request. Metrics count it like any other if it was executed.
func (s BestEffort) InvokeSpare(_ context.Context, name string, req *frame.Request) (*frame.Response, error) {
	d, err := s.lookUp(name)
	if err != nil {
		return nil, err
	}
	c, ok := s.controller()
	if !ok {
		return nil, spare.ErrOccupied
	}
	if !s.inFlight.Enter() {
		return nil, errDraining
	}
	defer s.inFlight.Leave()
	began := time.Now()
	resp, err := c.InvokeSpare(d.Name, req)
	switch {
	case err == nil:
		d.metrics.Begin()
		d.metrics.ObserveRequest(resp.Status, time.Since(began))
	case err != spare.ErrOccupied:
		d.metrics.Begin()
		d.metrics.ObserveRequest(web.StatusOf(err), time.Since(began))
	}
	return resp, err
}
