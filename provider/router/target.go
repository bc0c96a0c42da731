package router

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
)

// target is a function's dispatcher in one kind. While the function moves, a target
// passes requests on to the target in the other kind.
type target struct {
	provider.Dispatcher
	// before serves until Dispatcher can. next serves instead of Dispatcher once the
	// function has moved on.
	before, next atomic.Pointer[target]
	inFlight     atomic.Int64
}

// Invoke implements [provider.Dispatcher].
func (t *target) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return t.InvokePatiently(ctx, req, 0)
}

// InvokePatiently implements [provider.PatientDispatcher]. It ignores patience if the
// dispatcher does not implement it.
func (t *target) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	// Count the request first: leave then waits for requests that saw next unset.
	t.inFlight.Add(1)
	if next := t.next.Load(); next != nil {
		t.inFlight.Add(-1)
		return next.InvokePatiently(ctx, req, patience)
	}
	defer t.inFlight.Add(-1)
	if before := t.before.Load(); before != nil {
		return before.InvokePatiently(ctx, req, patience)
	}
	if patient, ok := t.Dispatcher.(provider.PatientDispatcher); ok {
		return patient.InvokePatiently(ctx, req, patience)
	}
	return t.Dispatcher.Invoke(ctx, req)
}

// CountElsewhere implements [provider.LoadDispatcher]: the load counts where the function serves now.
func (t *target) CountElsewhere() {
	if next := t.next.Load(); next != nil {
		next.CountElsewhere()
		return
	}
	if before := t.before.Load(); before != nil {
		before.CountElsewhere()
		return
	}
	if d, ok := t.Dispatcher.(provider.LoadDispatcher); ok {
		d.CountElsewhere()
	}
}

// forwarding is the target of an ordinary function.
type forwarding struct {
	*target
	forwarder provider.Forwarder
}

// Forward implements [provider.Forwarder].
func (t *forwarding) Forward(w http.ResponseWriter, r *http.Request, path string, waited time.Duration, keep func(n int64) error) int {
	t.inFlight.Add(1)
	defer t.inFlight.Add(-1)
	return t.forwarder.Forward(w, r, path, waited, keep)
}

// dispatcher returns the dispatcher for the routes: one that can forward if
// Dispatcher can.
func (t *target) dispatcher() provider.Dispatcher {
	if f, ok := t.Dispatcher.(provider.Forwarder); ok {
		return &forwarding{target: t, forwarder: f}
	}
	return t
}
