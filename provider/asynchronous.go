package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// asyncPatience is how much longer than its function's objective a request that
// came by the queue may wait for its turn. Those that somebody waits for go
// first.
const asyncPatience = time.Minute

// Invoke answers a request that did not come over HTTP but from the queue: name
// is the function's name or full name. It counts as any other request. The
// error is an [HTTPError] where the provider has a status for it.
func (s *Server) Invoke(ctx context.Context, name string, req *frame.Request) (*frame.Response, error) {
	d, err := s.lookUp(name)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.enter() {
		return nil, errDraining
	}
	defer s.inFlight.leave()
	started, code := time.Now(), http.StatusInternalServerError
	d.metrics.Begin()
	defer func() { d.metrics.ObserveRequest(code, time.Since(started)) }()
	resp, err := d.invokeQueued(ctx, req)
	if err != nil {
		code = statusOf(err)
		return nil, err
	}
	code = resp.Status
	return resp, nil
}

func (d *deployed) invokeQueued(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	if patient, ok := d.dispatcher.(PatientDispatcher); ok {
		return patient.InvokePatiently(ctx, req, asyncPatience)
	}
	return d.dispatcher.Invoke(ctx, req)
}

// Annotations returns the annotations of a deployed function; false if there is
// no such function.
func (s *Server) Annotations(name string) (map[string]string, bool) {
	d, err := s.lookUp(name)
	if err != nil {
		return nil, false
	}
	if of := d.Deployment.Annotations; of != nil {
		return *of, true
	}
	return nil, true
}
