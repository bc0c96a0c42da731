package sim

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// fill sets the defaults of a setup. It returns an error if the setup cannot be simulated.
func (s *Setup) fill() error {
	s.Tick = cmp.Or(s.Tick, DefaultTick)
	s.ColdWait = cmp.Or(s.ColdWait, DefaultColdWait)
	s.Unpark = cmp.Or(s.Unpark, DefaultUnpark)
	s.QueueLimit = cmp.Or(s.QueueLimit, DefaultQueueLimit)
	s.Beta = cmp.Or(s.Beta, capacity.DefaultBeta)
	if s.Machine == nil {
		s.Machine = fleet.Machine
	}
	switch {
	case len(s.Nodes) == 0:
		return errors.New("the cluster has no node: add at least one machine")
	case len(s.Functions) == 0:
		return errors.New("there is no function: add at least one")
	case s.System.Name == "":
		return errors.New("the system has no name: take one of baselines.Names")
	case s.Duration <= 0:
		return fmt.Errorf("duration %v: it must be more than 0", s.Duration)
	case s.Warmup < 0 || s.Warmup >= s.Duration:
		return fmt.Errorf("warm-up %v: it must be from 0 to less than the duration, %v", s.Warmup, s.Duration)
	case s.Unpark < 0:
		return fmt.Errorf("unpark %v: it must not be negative", s.Unpark)
	case s.Tick < 0 || s.Overhead < 0 || s.ColdWait < 0 || s.Sample < 0 || s.QueueLimit < 0 || !(s.Beta > 0):
		return fmt.Errorf("tick %v, overhead %v, cold wait %v, sample %v, queue limit %d, beta %v: none may be negative", s.Tick, s.Overhead, s.ColdWait, s.Sample, s.QueueLimit, s.Beta)
	}
	return errors.Join(s.checkNodes(), s.checkFunctions())
}

func (s *Setup) checkNodes() error {
	names := map[string]bool{}
	for i, n := range s.Nodes {
		if n.Name == "" || names[n.Name] {
			return fmt.Errorf("node %d has the name %q: each node needs a unique name", i+1, n.Name)
		}
		names[n.Name] = true
	}
	return nil
}

func (s *Setup) checkFunctions() error {
	names := map[string]bool{}
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.Name == "" || names[f.Name] {
			return fmt.Errorf("function %d has the name %q: each function needs a unique name", i+1, f.Name)
		}
		names[f.Name] = true
		if err := s.checkFunction(f); err != nil {
			return fmt.Errorf("function %s: %w", f.Name, err)
		}
	}
	return nil
}

func (s *Setup) checkFunction(f *Function) error {
	switch {
	case f.Times == nil:
		return errors.New("it has no execution times")
	case f.Arrivals == nil:
		return errors.New("it has no arrivals")
	case f.SLO <= 0:
		return fmt.Errorf("objective %v: it must be more than 0", f.SLO)
	case f.Start < 0:
		return fmt.Errorf("cold start %v: it must not be negative", f.Start)
	case f.MinInstances < 0 || f.MaxInstances < 0 || f.MaxInstances > 0 && f.MinInstances > f.MaxInstances:
		return fmt.Errorf("from %d to %d instances: neither may be negative, and the first must not be more than the second", f.MinInstances, f.MaxInstances)
	}
	if _, ok := f.Arrivals.(Rate); (s.Fluid || s.Told) && !ok {
		return errors.New("its arrivals have no rate, which a fluid run and a told load need: simulate single requests, and measure the load")
	}
	return nil
}
