// Package scenario reads the scenarios of the simulator: small YAML files with the
// cluster, the functions and their arrivals. It makes setups for lab/sim and simulates
// nothing. The built-in scenarios in lab/fleet explain the keys. Begin with Load.
//
// A file is read strictly. Unknown keys, values out of range, functions that fit no
// node and objectives that cannot be met are reported together, each with its line.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
	"github.com/faas-infer/faas-infer/variant"
)

// Kind is the question that a scenario answers.
type Kind string

// The kinds.
const (
	// MaxRPS looks for the highest load at which every function meets its SLO.
	MaxRPS Kind = "max-rps"
	// Run simulates the arrivals at their own load.
	Run Kind = "run"
	// Scale places given numbers of instances and times the scheduler.
	Scale Kind = "scale"
	// ColdStart compares cold starts and idle waste on traces.
	ColdStart Kind = "coldstart"
	// Tuning compares BATCH's buffer, tuned as the load changes, with one call per
	// request.
	Tuning Kind = "batch"
	// Variants compares systems that choose among variants of models: what they hold, and
	// what is late.
	Variants Kind = "variants"
	// Accuracy scales accuracy with the load: it compares functions that prefer accurate
	// answers with the most accurate variants alone, and with an optimum that knows the load.
	Accuracy Kind = "accuracy"
	// Goodput looks for the highest load of each function alone on the machines.
	Goodput Kind = "goodput"
)

// Kinds lists the kinds.
func Kinds() []Kind {
	return []Kind{MaxRPS, Run, Scale, ColdStart, Tuning, Variants, Accuracy, Goodput}
}

// Scenario is one scenario. Its [Scenario.Cases] are simulated one at a time.
type Scenario struct {
	// Name is its name, About a sentence about it.
	Name, About string
	Kind        Kind
	// Case is the name of the trace or the function of one of several cases, "" otherwise.
	Case string
	// Cluster has the machines.
	Cluster   fleet.Cluster
	Functions []Function
	// Duration is how long to simulate. Warmup is the part at the beginning that does
	// not count. Tick is the time between two passes of the scaler. Sample is the
	// resolution of series (0: no series).
	Duration, Warmup, Tick, Sample time.Duration
	// Overhead is the time of a request's way to an instance and back. ColdWait is how
	// long beyond its SLO a request that finds no instance may wait.
	Overhead, ColdWait time.Duration
	// Unpark is the time that a parked instance takes to serve again.
	Unpark time.Duration
	// Fork is the time that OpenFaaS+'s watchdog takes to start a process for a request.
	Fork time.Duration
	// QueueLimit bounds the requests that wait for one function; 0 is the
	// simulator's default.
	QueueLimit int
	// Fluid simulates rates instead of requests.
	Fluid bool
	// Told tells systems the true load instead of letting them measure it.
	Told bool
	// INFaaS are the parameters of INFaaS' systems.
	INFaaS baselines.INFaaS
	// Beta weighs CPU cores against GPU %.
	Beta float64
	// Seed is the seed of the random numbers.
	Seed uint64
	// Policies are the default policies to compare, all if empty.
	Policies []string
	// Instances are the numbers of instances that Scale places.
	Instances []int

	cases []*Scenario
}

// Function is one function of a scenario.
type Function struct {
	// Name is unique in the scenario. Model is the model's name in its profile.
	Name, Model string
	SLO         time.Duration
	// Percentile is the percentage of the requests that must be within the SLO; 0 is the
	// policies' default.
	Percentile float64
	// MaxBatch bounds every batch; 0 is no bound.
	MaxBatch int
	// Start is the time of a cold start: sandbox, library and loading the model.
	Start time.Duration
	// MinInstances and MaxInstances bound the number of instances; 0 is no bound.
	MinInstances, MaxInstances int
	// Memory and GPUMemory are those of an instance, in bytes. GPUMemory counts only if
	// the instance has a GPU share.
	Memory, GPUMemory int64
	// Times are the execution times of the model's batches. Price is the price of
	// resources; nil is the policies' default.
	Times systems.Times
	Price systems.Pricing
	// Peak is the highest mean rate of the arrivals in requests/s at load 1.
	Peak float64
	// Variants are those that are accurate enough for the function, nil if its instances
	// all load the same. Pinned has, by system, the choice of the developer.
	Variants []variant.Variant
	Pinned   map[string]systems.Pin
	// Accurate: the function prefers accurate answers to cheap ones.
	Accurate bool
	// Spread is the spread of the variants' times. Fixed is the part of a batch's time that
	// does not depend on how full it is.
	Spread, Fixed float64
	// Arrivals makes the function's arrivals with all rates multiplied by load.
	Arrivals func(load float64, seed uint64) (arrivals.Process, error)
}

// Cases lists the scenarios to simulate: the scenario itself, or one scenario for each of
// its traces, named by Case. A scenario with traces has the functions of its first case.
func (s *Scenario) Cases() []*Scenario {
	if len(s.cases) == 0 {
		return []*Scenario{s}
	}
	return s.cases
}

// Setup returns the setup of one run under a system, with all rates multiplied by load. The
// same seed gives the same run. A function's arrivals do not depend on the other functions.
func (s *Scenario) Setup(system systems.System, load float64, seed uint64) (sim.Setup, error) {
	setup := sim.Setup{
		Nodes: s.Cluster.Nodes(), Machine: fleet.Machine, System: system, Seed: seed,
		Duration: s.Duration, Warmup: s.Warmup, Tick: s.Tick, Sample: s.Sample,
		Told: s.Told, Boots: s.Cluster.Boots(), Overhead: s.Overhead, ColdWait: s.ColdWait, Unpark: s.Unpark, QueueLimit: s.QueueLimit, Fluid: s.Fluid, Beta: s.Beta,
	}
	priced := slices.ContainsFunc(s.Functions, func(f Function) bool { return f.Variants != nil })
	if priced {
		setup.System, setup.Beta = baselines.WithINFaaS(system, s.INFaaS).With(func(x *scaling.Settings) { x.Beta = 1 }), 1
	}
	if s.Told { // Headroom is for a load that is measured.
		setup.System = setup.System.With(func(x *scaling.Settings) { x.Headroom = 0 })
	}
	if baselines.Colocates(system) {
		setup.Serial = s.Cluster.Serial()
	}
	for _, f := range s.Functions {
		arrivals, err := f.Arrivals(load, mix(seed, f.Name))
		if err != nil {
			return sim.Setup{}, fmt.Errorf("%s: function %s at %v times its load: %w", s.Name, f.Name, load, err)
		}
		loads, times := s.loads(&f, system), f.Times
		if loads != nil {
			times = loads.All[0].Times
		} else if times != nil {
			times = baselines.Plain(system, times, s.Fork)
		}
		setup.Functions = append(setup.Functions, sim.Function{
			Function: systems.Function{Name: f.Name, SLO: f.SLO, Percentile: f.Percentile, MaxBatch: f.MaxBatch, Price: f.Price, Variants: loads},
			Times:    times, Arrivals: arrivals, Start: f.Start, Accurate: f.Accurate,
			MinInstances: f.MinInstances, MaxInstances: f.MaxInstances,
		})
	}
	return setup, nil
}

// mix returns the seed of a function: FNV-1a of its name and the seed's bytes.
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
