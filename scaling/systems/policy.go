// Package systems holds the systems that can be compared, each under its name: the
// baselines of INFless §5.1, INFless itself with its ablations (§5.2), and ours.
// A [System] says how a function's instances are configured ([System.Candidates]),
// how many there are and where ([System.Scaler]), how requests reach them
// ([System.Batching], [System.Queue]) and how long idle ones stay
// ([System.Cold]). The provider and the simulator take all of it from here, so
// what is simulated is what runs.
//
// The package is pure: it holds no clock, no goroutine and no socket.
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
	// Name is what flags and figures call it, Says what it is, in a line.
	Name, Says string

	settings scaling.Settings
	// scaler makes its scheduler; nil is our engine.
	scaler func(scaling.Settings) Scaler
	cold   string
	// period is how often the system looks at its load; 0 is whenever it is asked.
	period   time.Duration
	batching string
	queue    capacity.Queue
	// margin is what a predicted time is multiplied by; nil where the system
	// takes the objective's percentile of the time instead.
	margin *float64
	choose chooser
}

// Default is the name of the system that production runs.
const Default = FaaSInfer

// Names lists the systems, ours last.
func Names() []string {
	names := make([]string, 0, len(systems))
	for _, s := range systems {
		names = append(names, s.Name)
	}
	return names
}

// ByName returns the system of that name, or an error that lists the known ones.
func ByName(name string) (System, error) {
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, fmt.Errorf("unknown policy %q: it is one of %s", name, strings.Join(Names(), ", "))
	}
	return systems[i], nil
}

// Scaler decides what is started and stopped; see [scaling.Engine.Scale].
type Scaler interface {
	// Scale plans for all functions at once; times never go back.
	Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan
}

// Scaler returns the system's auto-scaling engine, with nothing remembered yet.
func (s System) Scaler() Scaler {
	made := s.scaler
	if made == nil {
		made = engine
	}
	if s.period > 0 {
		return &paced{Scaler: made(s.settings), period: s.period}
	}
	return made(s.settings)
}

// Settings are the engine's.
func (s System) Settings() scaling.Settings { return s.settings }

// Cold returns the system's cold-start policy, with nothing learned yet.
func (s System) Cold() coldstart.Policy {
	p, err := coldstart.New(s.cold, coldstart.Options{KeepAlive: baselineKeepAlive})
	if err != nil {
		panic(err) // The names are this package's, and a test makes them all.
	}
	return p
}

// Batching returns the system's way to batch one function's requests.
func (s System) Batching(o batching.Options) (batching.Policy, error) {
	return batching.New(s.batching, o)
}

// Queue says how requests reach instances.
func (s System) Queue() capacity.Queue { return s.queue }
