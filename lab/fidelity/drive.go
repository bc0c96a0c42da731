package fidelity

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// Observed is a client's view of a function under a load.
type Observed struct {
	// Requests is the number of requests sent. Mean and P99 are the latencies of the
	// answered ones, from the intended time of sending.
	Requests  int
	Mean, P99 time.Duration
	// Batch is the mean size of a batch. Within is the part of all requests that was
	// answered within the objective.
	Batch, Within float64
}

// Driven is the result of a load on a real provider.
type Driven struct {
	Observed
	Counts Counts
	// Front are the provider's response times to health checks during the load. Each is
	// the processor time of client and provider per request.
	Front []time.Duration
	Each  time.Duration
}

// Drive sends a function Poisson arrivals of a rate for d, and waits for the answers. The
// same seed gives the same arrivals, those of load.Poisson.
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
	go func() { asked <- s.checkHealth(asking) }()
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
