// Package scenario reads what is to be simulated: small YAML files with the
// cluster, the functions and their arrivals. The ones in lab/fleet are built
// in, and explain the keys.
//
// A file is read strictly. Unknown keys, values out of range, functions that fit no
// node and objectives that nothing can meet are told with their line, all at once.
package scenario

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/otp"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Kind is what a scenario finds out.
type Kind string

// The kinds.
const (
	// MaxRPS looks for the highest load at which every function meets its SLO.
	MaxRPS Kind = "max-rps"
	// Run simulates the arrivals as they are.
	Run Kind = "run"
	// Scale places as many instances as it says, and times that.
	Scale Kind = "scale"
	// ColdStart compares cold starts and idle waste on traces.
	ColdStart Kind = "coldstart"
	// Tuning compares BATCH's buffer, tuned again and again, with one call for each
	// request.
	Tuning Kind = "batch"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{MaxRPS, Run, Scale, ColdStart, Tuning} }

// Scenario is one scenario. Its [Scenario.Cases] are simulated one at a time.
type Scenario struct {
	// Name is what it is called, About a sentence on it.
	Name, About string
	Kind        Kind
	// Case is the name of the trace of one of several cases, "" otherwise.
	Case string
	// Cluster is the machines.
	Cluster   fleet.Cluster
	Functions []Function
	// Duration is how long is simulated, Warmup how much of its beginning does
	// not count, Tick how often the scaler looks, Sample the resolution of
	// series (0: none).
	Duration, Warmup, Tick, Sample time.Duration
	// Overhead is a request's way to an instance and back, ColdWait how much
	// longer than its SLO a request may wait that finds no instance.
	Overhead, ColdWait time.Duration
	// Unpark is what a parked instance takes to serve again.
	Unpark time.Duration
	// QueueLimit bounds the requests that wait for one function; 0 is the
	// simulator's default.
	QueueLimit int
	// Fluid simulates rates instead of requests.
	Fluid bool
	// Beta weighs CPU cores against GPU %.
	Beta float64
	// Seed is of all that is random.
	Seed uint64
	// Policies are those to compare unless others are asked for; none are all.
	Policies []string
	// Instances is, of Scale, how many instances to place, one figure each.
	Instances []int

	cases []*Scenario
}

// Function is one function of a scenario.
type Function struct {
	// Name is unique in the scenario, Model the name in its profile.
	Name, Model string
	SLO         time.Duration
	// Percentile is how many % of the requests are to be within the SLO; 0 is the
	// policies' default.
	Percentile float64
	// MaxBatch bounds every batch; 0 is no bound.
	MaxBatch int
	// Start is a cold start: sandbox, library and loading the model.
	Start time.Duration
	// MinInstances and MaxInstances bound the number of instances; 0: no bound.
	MinInstances, MaxInstances int
	// Memory and GPUMemory are an instance's, in bytes; GPUMemory counts only
	// where it has a GPU share.
	Memory, GPUMemory int64
	// Times are how long the model's batches take, Price what resources cost; nil is
	// what the policies take.
	Times systems.Times
	Price otp.Pricing
	// Peak is the highest mean rate of the arrivals in requests/s at load 1.
	Peak float64
	// Arrivals makes the function's arrivals at a load, which multiplies rates.
	Arrivals func(load float64, seed uint64) (arrivals.Process, error)
}

// Cases lists what is to be simulated: the scenario itself, or, where it has
// traces, one scenario for each, named by Case. Of a scenario with traces itself,
// the functions are those of the first.
func (s *Scenario) Cases() []*Scenario {
	if len(s.cases) == 0 {
		return []*Scenario{s}
	}
	return s.cases
}

// Setup is the scenario for one run under a system, with all rates multiplied by
// load. The same seed gives the same run; a function's arrivals do not depend on
// which others there are.
func (s *Scenario) Setup(system systems.System, load float64, seed uint64) (sim.Setup, error) {
	setup := sim.Setup{
		Nodes: s.Cluster.Nodes(), Machine: fleet.Machine, System: system, Seed: seed,
		Duration: s.Duration, Warmup: s.Warmup, Tick: s.Tick, Sample: s.Sample,
		Overhead: s.Overhead, ColdWait: s.ColdWait, Unpark: s.Unpark, QueueLimit: s.QueueLimit, Fluid: s.Fluid, Beta: s.Beta,
	}
	for _, f := range s.Functions {
		arrivals, err := f.Arrivals(load, mix(seed, f.Name))
		if err != nil {
			return sim.Setup{}, fmt.Errorf("%s: function %s at %v times its load: %w", s.Name, f.Name, load, err)
		}
		setup.Functions = append(setup.Functions, sim.Function{
			Function: systems.Function{Name: f.Name, SLO: f.SLO, Percentile: f.Percentile, MaxBatch: f.MaxBatch, Price: f.Price},
			Times:    f.Times, Arrivals: arrivals, Start: f.Start,
			MinInstances: f.MinInstances, MaxInstances: f.MaxInstances,
		})
	}
	return setup, nil
}

// mix is a function's own seed: FNV-1a of its name, and of the seed's bytes.
func mix(seed uint64, name string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	for range 8 {
		h = (h ^ seed&0xff) * prime
		seed >>= 8
	}
	return h
}
