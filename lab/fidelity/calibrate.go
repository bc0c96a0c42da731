package fidelity

import (
	"context"
)

// maxFront is for which part of the time the core of client and provider may be
// busy at the capacity: beyond that it is they that are measured.
const maxFront = 0.6

// capacity is how many requests per second the function's instance carries with
// batches of at most largest, and client and provider without being busy.
func (c *comparison) capacity(ctx context.Context, f *Subject, state string, alone *Curve, largest int) (float64, error) {
	s, err := c.Rig.Serve(ctx, state, withoutQuotas)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	if err := s.Deploy(ctx, f); err != nil {
		return 0, err
	}
	most := alone.Capacity(largest)
	ran, err := c.drive(ctx, s, f, most/10, c.Calibration, c.Seed+2)
	if err != nil {
		return 0, err
	}
	return min(most, maxFront/ran.Each.Seconds()), nil
}

// withoutQuotas has instances use all of their core, so that what they take is the
// executions' own time.
const withoutQuotas = "--no-cgroups"

// calibrate finds out what this machine takes for a function under a load.
func (c *comparison) calibrate(ctx context.Context, f *Subject, state string, alone *Curve, rate float64, seed uint64) (Machine, error) {
	s, err := c.Rig.Serve(ctx, state, withoutQuotas)
	if err != nil {
		return Machine{}, err
	}
	defer s.Stop()
	if err := s.Ready(ctx, f); err != nil {
		return Machine{}, err
	}
	ran, err := c.drive(ctx, s, f, rate, c.calibration(rate), seed)
	if err != nil {
		return Machine{}, err
	}
	return Learn(ran, alone), nil
}
