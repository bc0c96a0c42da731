package fidelity

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// Observed is what a client sees of a function under a load.
type Observed struct {
	// Requests were sent; Mean and P99 are of the latency of those that were
	// answered, from when they were to be sent.
	Requests  int
	Mean, P99 time.Duration
	// Batch is the mean size of a batch, Within the part of all requests that was
	// answered within the objective.
	Batch, Within float64
}

// Driven is what became of a load.
type Driven struct {
	Observed
	Counts Counts
	// Front is how long the provider took to say how it is meanwhile, each time
	// that it was asked; Each is the processor time of client and provider for one
	// request.
	Front []time.Duration
	Each  time.Duration
}

// Drive sends a function Poisson arrivals of a rate for a time, and waits for the
// answers. The same seed gives the same arrivals: those of load.Poisson.
func (s *Server) Drive(ctx context.Context, f *Subject, rate float64, d time.Duration, seed uint64) (*Driven, error) {
	before, err := s.counted(ctx, f.Name)
	if err != nil {
		return nil, err
	}
	worked, err := s.worked()
	if err != nil {
		return nil, err
	}
	asking, stop := context.WithCancel(ctx)
	asked := make(chan []time.Duration, 1)
	go func() { asked <- s.ask(asking) }()
	ran, err := load.Run(ctx, load.Options{Targets: []load.Target{f.target(s.url, rate)}, Duration: d, Seed: seed})
	stop()
	front := <-asked
	if err != nil {
		return nil, err
	}
	after, err := s.counted(ctx, f.Name)
	if err != nil {
		return nil, err
	}
	all, err := s.worked()
	if err != nil {
		return nil, err
	}
	r, n := ran.Targets[0], after.since(before)
	return &Driven{
		Observed: Observed{Requests: r.Requests, Mean: r.Latency.Mean, P99: r.Latency.P99, Batch: n.Requests / max(1, n.Batches), Within: r.WithinSLO},
		Counts:   n, Front: front, Each: max(time.Microsecond, (all-worked)/time.Duration(max(1, r.Requests))),
	}, nil
}
