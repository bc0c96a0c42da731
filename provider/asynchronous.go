package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// asyncPrefix begins the path of an asynchronous invocation.
const asyncPrefix = "/async-function/"

// Async keeps requests until their functions have answered them. *async.Queue
// implements it.
type Async interface {
	// Accept answers a request to /async-function/NAME and below: 202 once it is
	// stored. NAME is the ID of such a request if the method is GET or DELETE.
	// path is the rest of the request's path after NAME, "/" if there is none.
	// If it returns an error, the caller writes the answer.
	Accept(w http.ResponseWriter, r *http.Request, name, path string) error
	// System serves /system/async and below. The caller has authenticated the client.
	// If it returns an error, the caller writes the answer.
	System(w http.ResponseWriter, r *http.Request) error
}

// UseAsync makes the server take asynchronous requests. Call it before the handler
// serves. Without it, /async-function/ answers 501 and /system/async 404.
func (s *Server) UseAsync(a Async) {
	s.async = a
	system := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answerError(w, r, a.System(w, r)) })
	s.system.Handle("/system/async", system)
	s.system.PathPrefix("/system/async/").Handler(system)
}

// accept answers /async-function/NAME and everything below it; escaped is the
// request's path.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, escaped string) {
	if s.async == nil {
		writeErrorOf(w, r, web.Refuse(http.StatusNotImplemented,
			"this provider does not take asynchronous requests"))
		return
	}
	if !s.inFlight.Enter() {
		writeErrorOf(w, r, errDraining)
		return
	}
	defer s.inFlight.Leave()
	now := time.Now()
	name, path := splitPath(escaped, asyncPrefix)
	var traced *frame.Trace
	if s.tracer != nil {
		traced = s.tracer.Begin(r.Header, now) // The queue stores it with the request.
	}
	var err error
	d := queueable(s, name)
	if d != nil {
		err = d.callable()
	}
	if d != nil && err == nil {
		err = s.callers.admit(r.Context(), d, r.Header, w.Header())
	}
	if err == nil {
		err = s.async.Accept(w, r, name, path)
	}
	s.answerError(w, r, err)
	if traced != nil {
		endPublished(s, traced, name, r.Method, err)
	}
}

// endPublished ends the trace of a request to be stored. Names that nobody has deployed are not bounded, so it shows
// none of them.
func endPublished(s *Server, t *frame.Trace, name, method string, refused error) {
	a, err := resolve(name)
	if _, known := s.Annotations(name); err != nil || !known {
		return
	}
	code := http.StatusAccepted
	if refused != nil {
		code = web.StatusOf(refused)
	}
	t.Step = frame.Published
	endTrace(s.tracer, t, a.full(), method, code)
}

// AsyncPatience is added to the deadline of a request from the queue. Requests whose
// client waits for the answer go first. Capacity is planned so that the queue's requests wait no longer.
const AsyncPatience = time.Minute

// Invoke answers a request from the queue. name is the function's name or full name.
// Metrics count the request like any other. The error is a [web.HTTPError] if the
// provider has a status for it.
func (s *Server) Invoke(ctx context.Context, name string, req *frame.Request) (*frame.Response, error) {
	a, err := resolve(name)
	if err != nil {
		return nil, err
	}
	// The function was deployed when the request was accepted, perhaps by another replica.
	d, err := s.findOrAdopt(ctx, a, AsyncPatience)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.Enter() {
		return nil, errDraining
	}
	defer s.inFlight.Leave()
	started, code, late := time.Now(), http.StatusInternalServerError, false
	d.metrics.Begin()
	defer func() { d.observe(code, late, started, req.Trace) }()
	resp, err := d.invokeQueued(ctx, req)
	if err != nil {
		code = web.StatusOf(err)
		late = d.leftLate(code, started, time.Now())
		return nil, err
	}
	code, late = resp.Status, resp.Late
	return resp, nil
}

func (d *deployed) invokeQueued(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	if patient, ok := d.dispatcher.(PatientDispatcher); ok {
		return patient.InvokePatiently(ctx, req, AsyncPatience)
	}
	return d.dispatcher.Invoke(ctx, req)
}

// Annotations returns the annotations of a deployed function, and false if there is
// no such function. A function that is still being restored is deployed: its requests can be
// queued.
func (s *Server) Annotations(name string) (map[string]string, bool) {
	d := queueable(s, name)
	switch {
	case d == nil:
		return nil, false
	case d.Deployment.Annotations == nil:
		return nil, true
	}
	return *d.Deployment.Annotations, true
}

// queueable returns a deployed function, also one that is being restored or adopted; nil if there is
// none.
func queueable(s *Server, name string) *deployed {
	d, err := s.lookUp(name)
	if err == nil {
		return d
	}
	a, err := resolve(name)
	if err != nil || s.arriving.find(a.full()) == nil {
		return nil
	}
	if d := s.restored.find(a.full()); d != nil {
		return d
	}
	r, err := s.store.Function(a.namespace, a.name)
	if err != nil {
		return nil
	}
	f, _ := restored(r) // Deploying it reports the error.
	return s.deployed(f, broken{f.Name, errMissing})
}
