package testprovider

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Pass is one pass of the controller, from its request for the nodes to the last start that
// it orders.
type Pass struct {
	// Began is the time of the request for the nodes, Listing its duration.
	Began   time.Time
	Listing time.Duration
	// First and Last are the times of the first and the last ordered start.
	First, Last time.Time
	// Starts is the number of ordered starts.
	Starts int
}

// Decision returns the time from the request for the nodes to the first ordered start.
func (p Pass) Decision() time.Duration { return p.First.Sub(p.Began) }

// Watched is a backend that records the controller's calls.
type Watched struct {
	cluster.Backend

	mu     sync.Mutex
	pass   Pass
	passes []Pass
	span   Span
}

// Span is the time in which instances were made.
type Span struct {
	// Began is the time of the first order, Ended that of the last instance's creation.
	Began, Ended time.Time
	// Made and Failed are the numbers of created instances and of failures. Err is the first failure's
	// error.
	Made, Failed int
	Err          error
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

// end stores the current pass if it ordered a start. The caller holds the lock.
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
		if w.span.Failed++; w.span.Err == nil {
			w.span.Err = err
		}
		return in, err
	}
	w.span.Made++
	w.span.Ended = time.Now()
	return in, err
}

// Begin clears the records.
func (w *Watched) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passes, w.pass, w.span = nil, Pass{Began: w.pass.Began, Listing: w.pass.Listing}, Span{}
}

// Passes returns the passes since Begin that ordered a start.
func (w *Watched) Passes() []Pass {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.passes)
	if w.pass.Starts > 0 {
		out = append(out, w.pass)
	}
	return out
}

// Span returns the span since Begin.
func (w *Watched) Span() Span {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.span
}
