package fidelity

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/faas-infer/faas-infer/bench/fidelity/machine"
	"github.com/faas-infer/faas-infer/bench/fidelity/rig"
)

// mostFront is for which part of the time the core of client and provider may be
// busy at the capacity: beyond that it is they that are measured.
const mostFront = 0.6

// calibrate finds out what this machine takes for a function: for an instance alone,
// and under each load. Instances have no CPU quota meanwhile, so that their times are
// the executions' own.
func (c *comparison) calibrate(ctx context.Context, f *rig.Subject, dir string) (*machine.Curve, []Pair, error) {
	p, err := c.Rig.Serve(ctx, filepath.Join(dir, "calibration"), "--no-cgroups")
	if err != nil {
		return nil, nil, err
	}
	defer p.Stop()
	if err := p.Deploy(ctx, f); err != nil {
		return nil, nil, err
	}
	instances, err := p.Instances(f.Name)
	if err != nil {
		return nil, nil, err
	}
	if len(instances) == 0 {
		return nil, nil, errors.New("the provider has no instance")
	}
	alone, err := machine.Measure(ctx, c.Rig, f, instances[0].Spec.Model, dir)
	if err != nil {
		return nil, nil, err
	}
	capacity := alone.Capacity(f.SLO)
	first, err := c.drive(ctx, p, f, capacity/10, c.Calibration, c.Seed+1)
	if err != nil {
		return nil, nil, err
	}
	capacity = min(capacity, mostFront/first.Each.Seconds())
	var pairs []Pair
	for i, part := range c.Loads {
		ran, err := c.drive(ctx, p, f, part*capacity, c.Calibration, c.Seed+2+uint64(i))
		if err != nil {
			return nil, nil, err
		}
		pairs = append(pairs, Pair{Function: f.Function, Load: part, Rate: part * capacity, Machine: machine.Learn(ran, alone)})
	}
	return alone, pairs, nil
}
