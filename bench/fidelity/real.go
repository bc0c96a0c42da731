package fidelity

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/bench/fidelity/rig"
)

// drive puts a function under a load.
func (c *comparison) drive(ctx context.Context, s *rig.Server, f *rig.Subject, rate float64, d time.Duration, seed uint64) (ran *rig.Driven, err error) {
	err = c.bar.during(d, func() (err error) {
		ran, err = s.Drive(ctx, f, rate, d, seed)
		return err
	})
	return ran, err
}

// adapt has a provider measure the function and see some of its executions.
func (c *comparison) adapt(ctx context.Context, f *rig.Subject, state string, rate float64) error {
	s, err := c.Rig.Serve(ctx, state)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.Deploy(ctx, f); err != nil {
		return err
	}
	_, err = c.drive(ctx, s, f, rate, c.Calibration, c.Seed+1)
	return err
}

// real is a pair's load on a provider that has just started, as the simulated one
// will have. It tells whether CPU quotas held.
func (c *comparison) real(ctx context.Context, f *rig.Subject, state string, p *Pair) (limited bool, err error) {
	s, err := c.Rig.Serve(ctx, state)
	if err != nil {
		return false, err
	}
	defer s.Stop()
	if err := s.Ready(ctx, f); err != nil {
		return false, err
	}
	if _, err := c.drive(ctx, s, f, p.Rate, c.Warmup, c.Seed+1); err != nil {
		return false, err
	}
	ran, err := c.drive(ctx, s, f, p.Rate, c.length(p.Rate), c.Seed)
	if err != nil {
		return false, err
	}
	p.Real = ran.Observed
	instances, err := s.Instances(f.Name)
	for _, in := range instances {
		p.RealConfigs = append(p.RealConfigs, in.Spec.Config)
		limited = limited || in.Cgroup
	}
	return limited, err
}
