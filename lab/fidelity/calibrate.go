package fidelity

import (
	"context"
)

// maxFront is the maximum part of the time in which the core of client and provider may be
// busy at the capacity. Above it, they would limit the rate.
const maxFront = 0.6

// capacity returns the requests/s that the function's instance carries with batches of at
// most largest, and that client and provider carry within maxFront.
func (c *comparison) capacity(ctx context.Context, f *Subject, state string, alone *Curve, largest int) (float64, error) {
	s, err := c.Rig.Serve(ctx, state, withoutQuotas)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	if err := s.Deploy(ctx, f); err != nil {
		return 0, err
	}
	highest := alone.Capacity(largest)
	ran, err := c.drive(ctx, s, f, highest/10, c.Calibration, c.Seed+2)
	if err != nil {
		return 0, err
	}
	return min(highest, maxFront/ran.Each.Seconds()), nil
}

// withoutQuotas lets instances use all of their core. Measured times are then those of the
// executions alone.
const withoutQuotas = "--no-cgroups"

// calibrate measures this machine's times for a function under a load.
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
	return learn(ran, alone), nil
}
