// Package scenario reads what is to be simulated: small YAML files with the
// cluster, the functions and their arrivals.
package scenario

import (
	"time"

	"github.com/faas-infer/faas-infer/sim/arrival"
	"github.com/faas-infer/faas-infer/sim/fleet"
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
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{MaxRPS, Run, Scale, ColdStart} }

// Scenario is one scenario. Its Cases are simulated one at a time.
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
	// Fluid simulates rates instead of requests.
	Fluid bool
	// Beta weighs CPU cores against GPU %.
	Beta float64
	// Seed is of all that is random.
	Seed uint64
	// Policies are those to compare unless others are asked for.
	Policies []string
	// Instances is, of Scale, how many instances to place, one figure each.
	Instances []int
}

// Function is one function of a scenario.
type Function struct {
	// Name is unique in the scenario, Model the name in its profile.
	Name, Model string
	SLO         time.Duration
	// Percentile is the share of requests that are to be within the SLO, as 0.99.
	Percentile float64
	MaxBatch   int
	// Start is a cold start: sandbox, library and loading the model.
	Start time.Duration
	// MinInstances and MaxInstances bound the number of instances; 0: no bound.
	MinInstances, MaxInstances int
	// Memory and GPUMemory are an instance's, in bytes; GPUMemory counts only
	// where it has a GPU share.
	Memory, GPUMemory int64
	// Peak is the highest mean rate of the arrivals in requests/s at load 1.
	Peak float64
	// Arrivals makes the function's arrivals at a load, which multiplies rates.
	Arrivals func(load float64, seed uint64) (arrival.Process, error)
}
