// Package systems defines the ways to run functions as a whole, each under its name: faas-infer and
// INFless. A paper's package adds its own by [Register], and the lab the baselines and ablations by [New]. A [System] decides
// how a function's instances are configured ([System.Candidates]), how many there are and where
// ([System.Scaler]), how requests reach them ([System.Batching], [System.Queue]) and how long idle
// ones stay ([System.Cold]). The provider and the simulator both use it, so the simulator runs what
// production runs.
//
// The package is pure: it has no clock, goroutine or socket, and carries out no plan
// itself. Begin with [ByName] and systems.go.
package systems

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// System is one system to serve functions with. Its zero value serves nothing;
// see [ByName].
type System struct {
	// Name is the name in flags and figures. Says describes the system in a line.
	Name, Says string

	rules Rules
	// coldOptions are the cold-start policy's options.
	coldOptions coldstart.Options
}

// Rules are how a system decides.
type Rules struct {
	// Settings are the engine's. Scaler makes the scheduler; nil means the engine of package
	// scaling.
	Settings scaling.Settings
	Scaler   func(scaling.Settings) Scaler
	// Cold is the name of the cold-start policy.
	Cold string
	// Period is how often the system looks at its load; 0 means at every call. Meter is how often
	// it counts the load, if it is not 0 and another time than Period.
	Period, Meter time.Duration
	// Batching is the name of the batching policy. Policy, if it is not nil, makes another one.
	Batching string
	Policy   func() batching.Policy
	Queue    capacity.Queue
	// Margin is the factor for predicted times. If it is 0, the system takes the
	// objective's percentile of the time instead.
	Margin float64
	// Choose lists the candidates that the system considers. Believes, if it is not nil, returns the
	// times that the system derives from the measured ones for its tables.
	Choose   Chooser
	Believes func(Times) Times
	// Tuner, if it is not nil, makes the system's tuner of one function with mean times t.
	Tuner func(s System, f Function, t Times) Tuner
	// Instances, if it is not nil, is the number of instances that a developer wants; 0 is none.
	Instances func(f Function) int
}

// New returns a system.
func New(name, says string, r Rules) System { return System{Name: name, Says: says, rules: r} }

// Change returns the system under another name with some of its rules changed.
func (s System) Change(name, says string, change func(*Rules)) System {
	s.Name, s.Says = name, says
	change(&s.rules)
	return s
}

// Register adds a system to those of [ByName]. Packages of papers call it when they are initialised. It
// panics if the name is taken.
func Register(s System) {
	if _, err := ByName(s.Name); err == nil {
		panic("systems: " + s.Name + " is registered already")
	}
	systems = slices.Insert(systems, 0, s)
}

// Default is the name of the system that production runs.
const Default = FaaSInfer

// ByName returns the system of that name, or an error that lists the known ones.
func ByName(name string) (System, error) {
	var names []string
	for _, s := range systems {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return System{}, fmt.Errorf("unknown policy %q: it is one of %s", name, strings.Join(names, ", "))
}

// Scaler decides which instances start and stop; see [scaling.Engine.Scale].
type Scaler interface {
	// Scale plans for all functions at once; times never go back.
	Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan
}

// Scaler returns a new auto-scaling engine of the system.
func (s System) Scaler() Scaler {
	made := s.rules.Scaler
	if made == nil {
		made = engine
	}
	if s.rules.Period > 0 {
		return &paced{Scaler: made(s.rules.Settings), period: s.rules.Period}
	}
	return made(s.rules.Settings)
}

// Settings returns the engine's settings.
func (s System) Settings() scaling.Settings { return s.rules.Settings }

// Batching returns a new batching policy of the system, for one function.
func (s System) Batching(o batching.Options) (batching.Policy, error) {
	if s.rules.Policy != nil {
		return s.rules.Policy(), nil
	}
	return batching.New(s.rules.Batching, o)
}

// Range is the load that an instance with a queue of its own takes, by Eq. 1 with the system's
// rounding, if its full batch is predicted to take exec. R_max is the sum of these; the parts r_i of the
// load follow from them ([Deal]).
func (s System) Range(c cluster.Config, exec, slo time.Duration) capacity.Range {
	return s.rules.Settings.Bounds(c, exec, slo, capacity.PerInstance)
}

// Instances is the number of instances of a function that a developer wants, 0 if there is none.
func (s System) Instances(f Function) int {
	if s.rules.Instances == nil {
		return 0
	}
	return s.rules.Instances(f)
}

// Queue says how requests reach instances.
func (s System) Queue() capacity.Queue { return s.rules.Queue }
