package kubernetes

import (
	"context"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Pass is one look of the controller at the load: from when it asks for the nodes to
// the last instance that it orders.
type Pass struct {
	// Began is when it asked for the nodes, which took Listing.
	Began   time.Time
	Listing time.Duration
	// First and Last are when the first and the last start was ordered.
	First, Last time.Time
	// Starts were ordered by it.
	Starts int
}

// Decision is how long it took from asking for the nodes to ordering the first start.
func (p Pass) Decision() time.Duration { return p.First.Sub(p.Began) }

// Watched is a backend that writes down when it was asked what.
type Watched struct {
	cluster.Backend

	mu     sync.Mutex
	pass   Pass
	passes []Pass
	span   Span
}

// Span is the time in which instances were made.
type Span struct {
	// Began is when the first was ordered, Ended when the last existed.
	Began, Ended time.Time
	// Made and Failed count them.
	Made, Failed int
}

func newWatched(b cluster.Backend) *Watched { return &Watched{Backend: b} }

// Nodes implements [cluster.Backend].
func (w *Watched) Nodes(ctx context.Context) ([]cluster.Node, error) {
	began := time.Now()
	nodes, err := w.Backend.Nodes(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
	w.pass = Pass{Began: began, Listing: time.Since(began)}
	return nodes, err
}

// end keeps the pass before if it ordered anything. The lock is held.
func (w *Watched) end() {
	if w.pass.Starts > 0 {
		w.passes = append(w.passes, w.pass)
	}
	w.pass = Pass{}
}

// Start implements [cluster.Backend].
func (w *Watched) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	now := time.Now()
	w.mu.Lock()
	if w.pass.Starts++; w.pass.Starts == 1 {
		w.pass.First = now
	}
	w.pass.Last = now
	if w.span.Began.IsZero() {
		w.span.Began = now
	}
	w.mu.Unlock()
	in, err := w.Backend.Start(ctx, spec)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.span.Failed++
		return in, err
	}
	w.span.Made++
	w.span.Ended = time.Now()
	return in, err
}

// Begin forgets what was written down.
func (w *Watched) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passes, w.pass, w.span = nil, Pass{Began: w.pass.Began, Listing: w.pass.Listing}, Span{}
}

// Passes are those since Begin that ordered something.
func (w *Watched) Passes() []Pass {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := append([]Pass(nil), w.passes...)
	if w.pass.Starts > 0 {
		out = append(out, w.pass)
	}
	return out
}

// Span is what was made since Begin.
func (w *Watched) Span() Span {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.span
}
