// Package fidelity compares the simulator with what it simulates. The same functions
// get the same requests at the same instants, once from a provider and an instance
// of this machine and once in the simulator, under the same policies; what comes out
// is by how much the two differ.
//
// # What the simulator is told
//
// Decisions are the policies' own on both sides, and they go by the same predicted
// times: those that the provider has stored by the end. What happens then is simulated, given
// what this machine takes, all of it measured before and after, under other requests:
//
//   - how long an instance executes batches of each size, on a core of its own
//     ([machine.Curve]), with the spread as it was seen, and how much longer under the load
//     (caches are cold after a pause, other cores are busy);
//   - the way of a batch to an instance and back;
//   - the way of a request from the client to the dispatcher and back.
//
// Waiting, the forming of batches, CPU quotas and which configs the scheduler takes
// are not measured: there the simulator must be right by itself.
//
// # The setting
//
// Each function has one instance, on a core that nobody else uses; client and
// provider share another. Several instances on one core would be in each other's
// way, of which the simulator knows nothing.
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

// Options are what a comparison works with.
type Options struct {
	// Rig is how providers are started. This process, and with it the provider, has
	// another core than the instances (see bench.Pin).
	Rig RigOptions
	// Engine is the name under which the provider keeps profiles.
	Engine    string
	Functions []Function
	// Loads are the parts of the capacity that are offered.
	Loads []float64
	// Each load is offered for Duration, and longer where that would be less than
	// LeastRequests, but at most for Longest; before that for Warmup, which does not
	// count. Calibration is how long the machine is measured before and after under
	// each load, and up to three times that where there are few requests.
	Duration, Longest, Warmup, Calibration time.Duration
	LeastRequests                          int
	Seed                                   uint64
	// Log is where what goes on is told to people, Progress is called now and then.
	Log      io.Writer
	Progress func(done, total int)
}

// Default is what the command compares.
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

// Pair is one function at one load, as it was and as it was simulated.
type Pair struct {
	Function Function
	// Load is the part of the capacity, Rate what that is in requests/s.
	Load, Rate      float64
	Real, Simulated Observed
	// Configs are those of the instances at the end.
	RealConfigs, SimulatedConfigs []cluster.Config
	// Machine is what the simulator was told; Drift is by which part executions
	// took longer or shorter after the comparison than before.
	Machine Machine
	Drift   float64
}

// Run compares one function after the other, at one load after the other.
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
	c.bar.tell = o.Progress
	var all []Pair
	for _, f := range o.Functions {
		s, err := NewSubject(f)
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

// comparison is one under way.
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
	fmt.Fprintf(c.Log, "%s: measuring what this machine takes\n", f.Name)
	state := filepath.Join(dir, "state")
	alone, largest, err := c.adapt(ctx, f, state, dir)
	if err != nil {
		return nil, err
	}
	// In a state of its own: executions without a quota would teach the provider
	// wrong.
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
		p.Machine, p.Drift = Between(before, after)
		// The provider corrects its predictions within a second of a load.
		times, err := c.known(state, f)
		if err != nil {
			return nil, err
		}
		if err := c.simulate(ctx, f, times, &Truth{Curve: alone, Pace: p.Machine.Pace, Limited: limited}, p); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// length is for how long a rate is offered.
func (o *Options) length(rate float64) time.Duration {
	return min(max(o.Duration, Seconds(float64(o.LeastRequests)/rate)), max(o.Longest, o.Duration))
}

// calibration is for how long the machine is measured under a rate: for a fifth of
// the requests that are compared, within reason.
func (o *Options) calibration(rate float64) time.Duration {
	return min(max(o.Calibration, Seconds(float64(o.LeastRequests)/5/rate)), 3*o.Calibration)
}
