package router

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
)

// target is a function's dispatcher for as long as the function is of one kind.
// While it moves to the other kind, requests that found the one are passed on to
// the other.
type target struct {
	provider.Dispatcher
	// before serves for as long as Dispatcher cannot, next instead of it from
	// then on.
	before, next atomic.Pointer[target]
	inFlight     atomic.Int64
}

// Invoke implements [provider.Dispatcher].
func (t *target) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return t.InvokePatiently(ctx, req, 0)
}

// InvokePatiently implements [provider.PatientDispatcher], as far as the
// dispatcher is one.
func (t *target) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	// Counted first: who sees next unset is waited for.
	t.inFlight.Add(1)
	defer t.inFlight.Add(-1)
	if next := t.next.Load(); next != nil {
		return next.InvokePatiently(ctx, req, patience)
	}
	if before := t.before.Load(); before != nil {
		return before.InvokePatiently(ctx, req, patience)
	}
	if patient, ok := t.Dispatcher.(provider.PatientDispatcher); ok {
		return patient.InvokePatiently(ctx, req, patience)
	}
	return t.Dispatcher.Invoke(ctx, req)
}

// forwarding is the target of an ordinary function.
type forwarding struct {
	*target
	forwarder provider.Forwarder
}

// Forward implements [provider.Forwarder].
func (t *forwarding) Forward(w http.ResponseWriter, r *http.Request, path string) int {
	t.inFlight.Add(1)
	defer t.inFlight.Add(-1)
	return t.forwarder.Forward(w, r, path)
}

// dispatcher is what the routes are to ask.
func (t *target) dispatcher() provider.Dispatcher {
	if f, ok := t.Dispatcher.(provider.Forwarder); ok {
		return &forwarding{target: t, forwarder: f}
	}
	return t
}
