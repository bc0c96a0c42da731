// Package fidelity compares the simulator with a real provider on this machine. The same
// functions get the same requests at the same instants under the same policies, once from
// a provider and an instance and once in the simulator. The result is by how much the two
// differ. Begin with Run.
//
// # The simulator's inputs
//
// On both sides the same policies decide with the same predicted times, those that the
// provider has stored by the end. The simulator needs this machine's times. They are
// measured before and after the comparison, under other requests:
//
//   - the time of an instance with a core to itself to execute batches of each size
//     ([Curve]), with the observed spread, and how much longer it takes under the load
//     (caches are cold after a pause, other cores are busy);
//   - the time of a batch's way to an instance and back;
//   - the time of a request's way from the client to the dispatcher and back.
//
// Waiting times, the forming of batches, CPU quotas and the scheduler's choice of configs
// are not measured: the simulator must get them right.
//
// # The setting
//
// Each function has one instance with a core to itself; client and provider share
// another. Several instances on one core would slow each other down, which the simulator
// does not model.
package fidelity

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Options are the options of a comparison.
type Options struct {
	// Rig says how to start providers. This process, and with it the provider, has
	// another core than the instances (see rig.PinCores).
	Rig RigOptions
	// Engine is the name under which the provider keeps profiles.
	Engine    string
	Functions []Function
	// Loads are parts of the capacity. Each is offered in turn.
	Loads []float64
	// Each load is offered for Duration. It is offered for longer, at most Longest, to
	// reach LeastRequests. Warmup precedes it and does not count. Calibration is how long
	// the machine is measured under each load, before and after it. With few requests it
	// takes up to three times that.
	Duration, Longest, Warmup, Calibration time.Duration
	LeastRequests                          int
	Seed                                   uint64
	// Log gets progress messages. Progress is called with seconds of load.
	Log      io.Writer
	Progress func(done, total int)
}

// Default returns the options of "simulate --against local".
func Default() Options {
	return Options{
		Functions: []Function{
			{Name: "dssm-2365", SLO: 50 * time.Millisecond, MaxBatch: 16},
			{Name: "lstm-2365", SLO: 200 * time.Millisecond, MaxBatch: 16},
			{Name: "mnist", SLO: 50 * time.Millisecond, MaxBatch: 16},
		},
		Loads: []float64{0.2, 0.5, 0.8}, Duration: 12 * time.Second, Longest: 36 * time.Second, LeastRequests: 1000,
		Warmup: 6 * time.Second, Calibration: 3 * time.Second, Seed: 1,
	}
}

// Pair is one function at one load, real and simulated.
type Pair struct {
	Function Function
	// Load is the part of the capacity, Rate the load in requests/s.
	Load, Rate      float64
	Real, Simulated Observed
	// RealConfigs are those of the instances at the end. SimulatedConfigs are those
	// that the simulated instances had.
	RealConfigs, SimulatedConfigs []cluster.Config
	// Machine has the simulator's inputs. Drift is the relative change of execution
	// times from before the comparison to after it.
	Machine Machine
	Drift   float64
}

// Run compares the functions one after the other, each at one load after the other.
func Run(ctx context.Context, o Options) ([]Pair, error) {
	system, err := systems.ByName(systems.Default)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-fidelity-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := &comparison{Options: o, system: system}
	c.bar.total = len(o.Functions) * (len(o.Loads)*int((2*o.Calibration+o.Warmup+o.Duration)/time.Second) + 2*int(o.Calibration/time.Second))
	c.bar.report = o.Progress
	var all []Pair
	for _, f := range o.Functions {
		s, err := newSubject(f)
		if err != nil {
			return nil, err
		}
		pairs, err := c.compare(ctx, s, filepath.Join(dir, f.Name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		all = append(all, pairs...)
	}
	return all, nil
}

// comparison is the state of Run.
type comparison struct {
	Options
	system systems.System
	bar    bar
}

// compare compares one function.
func (c *comparison) compare(ctx context.Context, f *Subject, dir string) ([]Pair, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Log, "%s: measuring this machine's times\n", f.Name)
	state := filepath.Join(dir, "state")
	alone, largest, err := c.adapt(ctx, f, state, dir)
	if err != nil {
		return nil, err
	}
	// Calibration has a separate state: the provider must not learn from executions
	// without a quota.
	calibration := filepath.Join(dir, "calibration")
	capacity, err := c.capacity(ctx, f, calibration, alone, largest)
	if err != nil {
		return nil, err
	}
	pairs := make([]Pair, len(c.Loads))
	for i, part := range c.Loads {
		p := &pairs[i]
		*p = Pair{Function: f.Function, Load: part, Rate: part * capacity}
		fmt.Fprintf(c.Log, "%s: %.0f requests/s, %.0f %% of the capacity, on this machine and simulated\n", f.Name, p.Rate, 100*p.Load)
		before, err := c.calibrate(ctx, f, calibration, alone, p.Rate, c.Seed+3)
		if err != nil {
			return nil, err
		}
		limited, err := c.real(ctx, f, state, p)
		if err != nil {
			return nil, err
		}
		after, err := c.calibrate(ctx, f, calibration, alone, p.Rate, c.Seed+4)
		if err != nil {
			return nil, err
		}
		p.Machine, p.Drift = between(before, after)
		// The provider corrects its predictions within a second of a load.
		times, err := c.providerTimes(state, f)
		if err != nil {
			return nil, err
		}
		if err := c.simulate(ctx, f, times, &Truth{Curve: alone, Pace: p.Machine.Pace, Limited: limited}, p); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// length returns how long a rate is offered.
func (o *Options) length(rate float64) time.Duration {
	return min(max(o.Duration, seconds(float64(o.LeastRequests)/rate)), max(o.Longest, o.Duration))
}

// calibration returns how long the machine is measured under a rate: for a fifth of
// LeastRequests, but from Calibration to three times that.
func (o *Options) calibration(rate float64) time.Duration {
	return min(max(o.Calibration, seconds(float64(o.LeastRequests)/5/rate)), 3*o.Calibration)
}
