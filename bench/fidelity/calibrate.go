package fidelity

import (
	"context"

	"github.com/faas-infer/faas-infer/bench/fidelity/machine"
	"github.com/faas-infer/faas-infer/bench/fidelity/rig"
)

// mostFront is for which part of the time the core of client and provider may be
// busy at the capacity: beyond that it is they that are measured.
const mostFront = 0.6

// calibrate finds out what this machine takes for a function under each load, the
// capacity being that of batches of at most largest. Instances have no CPU quota
// meanwhile, so that their times are the executions' own.
func (c *comparison) calibrate(ctx context.Context, f *rig.Subject, state string, alone *machine.Curve, largest int) ([]Pair, error) {
	s, err := c.Rig.Serve(ctx, state, "--no-cgroups")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	if err := s.Deploy(ctx, f); err != nil {
		return nil, err
	}
	capacity := alone.Capacity(largest)
	first, err := c.drive(ctx, s, f, capacity/10, c.Calibration, c.Seed+1)
	if err != nil {
		return nil, err
	}
	capacity = min(capacity, mostFront/first.Each.Seconds())
	var pairs []Pair
	for i, part := range c.Loads {
		rate := part * capacity
		ran, err := c.drive(ctx, s, f, rate, c.calibration(rate), c.Seed+2+uint64(i))
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, Pair{Function: f.Function, Load: part, Rate: rate, Machine: machine.Learn(ran, alone)})
	}
	return pairs, nil
}
