package fidelity

import (
	"context"
	"errors"
	"time"
)

// drive loads a function with the progress bar.
func (c *comparison) drive(ctx context.Context, s *Server, f *Subject, rate float64, d time.Duration, seed uint64) (ran *Driven, err error) {
	err = c.bar.during(d, func() (err error) {
		ran, err = s.Drive(ctx, f, rate, d, seed)
		return err
	})
	return ran, err
}

// adapt measures an instance of the function alone, and loads a provider to let it correct
// its predictions. It returns the largest batch of the resulting configs.
func (c *comparison) adapt(ctx context.Context, f *Subject, state, dir string) (alone *Curve, largest int, err error) {
	s, err := c.Rig.Serve(ctx, state)
	if err != nil {
		return nil, 0, err
	}
	defer s.Stop()
	if err := s.Deploy(ctx, f); err != nil {
		return nil, 0, err
	}
	instances, err := s.Instances(f.Name)
	if err != nil {
		return nil, 0, err
	}
	if len(instances) == 0 {
		return nil, 0, errors.New("the provider has no instance of the function")
	}
	if alone, err = Measure(ctx, c.Rig, f, instances[0].Spec.Model, dir); err != nil {
		return nil, 0, err
	}
	if _, err := c.drive(ctx, s, f, alone.Capacity(1)/2, c.Calibration, c.Seed+1); err != nil {
		return nil, 0, err
	}
	if instances, err = s.Instances(f.Name); err != nil {
		return nil, 0, err
	}
	for _, in := range instances {
		largest = max(largest, in.Spec.Config.Batch)
	}
	return alone, largest, nil
}

// real offers a pair's load to a provider that has just started, like the simulated one.
// limited reports whether instances had CPU quotas.
func (c *comparison) real(ctx context.Context, f *Subject, state string, p *Pair) (limited bool, err error) {
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
