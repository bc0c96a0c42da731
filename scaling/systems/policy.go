// Package systems defines the systems that can be compared, each under its name: the
// baselines of INFless §5.1, INFless itself with its ablations (§5.2), INFaaS and its
// baselines (ATC'21, §6), which choose among variants of models, and faas-infer. A
// [System] decides how a function's instances are configured ([System.Candidates]), how
// many there are and where ([System.Scaler]), how requests reach them ([System.Batching],
// [System.Queue]) and how long idle ones stay ([System.Cold]). The provider and the
// simulator both use it, so the simulator runs what production runs.
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

	settings scaling.Settings
	// scaler makes the system's scheduler; nil means the engine of package scaling.
	scaler func(scaling.Settings) Scaler
	// cold is the name of the cold-start policy, coldOptions are its options.
	cold        string
	coldOptions coldstart.Options
	// period is how often the system looks at its load; 0 means at every call.
	period   time.Duration
	batching string
	queue    capacity.Queue
	// margin is the factor for predicted times. If it is nil, the system takes the
	// objective's percentile of the time instead.
	margin *float64
	choose chooser
	// plain is the share of all instances of OpenFaaS+, scatters: requests go to instances
	// at random.
	plain    cluster.Resources
	scatters bool
	// hourly: BATCH's optimiser runs each hour, as published.
	hourly bool
	// release: the system considers the configs of INFless' release only.
	release bool
	// infaas are the parameters of INFaaS' systems. colocates is [System.Colocates].
	infaas    INFaaS
	colocates bool
}

// Default is the name of the system that production runs.
const Default = FaaSInfer

// Names lists the names of the systems that serve functions of one model, faas-infer last.
func Names() []string { return names(func(s System) bool { return s.infaas.plan == nil }) }

// ForVariants lists those that choose among variants of models, faas-infer last.
func ForVariants() []string {
	return names(func(s System) bool { return s.infaas.plan != nil || s.Name == FaaSInfer })
}

func names(of func(System) bool) []string {
	var all []string
	for _, s := range systems {
		if of(s) {
			all = append(all, s.Name)
		}
	}
	return all
}

// ByName returns the system of that name, or an error that lists the known ones.
func ByName(name string) (System, error) {
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, fmt.Errorf("unknown policy %q: it is one of %s", name, strings.Join(names(func(System) bool { return true }), ", "))
	}
	return systems[i], nil
}

// Scaler decides which instances start and stop; see [scaling.Engine.Scale].
type Scaler interface {
	// Scale plans for all functions at once; times never go back.
	Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan
}

// Scaler returns a new auto-scaling engine of the system.
func (s System) Scaler() Scaler {
	if s.infaas.plan != nil {
		return newINFaaS(s.infaas)
	}
	made := s.scaler
	if made == nil {
		made = engine
	}
	if s.period > 0 {
		return &paced{Scaler: made(s.settings), period: s.period}
	}
	return made(s.settings)
}

// Settings returns the engine's settings.
func (s System) Settings() scaling.Settings { return s.settings }

// Batching returns a new batching policy of the system, for one function.
func (s System) Batching(o batching.Options) (batching.Policy, error) {
	if s.infaas.plan != nil {
		return batching.NewLeastLoaded(), nil
	}
	if s.scatters {
		return batching.NewRandom(1), nil
	}
	return batching.New(s.batching, o)
}

// Range is the load that an instance with a queue of its own takes, by Eq. 1 with the system's
// rounding, if its full batch is predicted to take exec. R_max is the sum of these; the parts r_i of the
// load follow from them ([Deal]).
func (s System) Range(c cluster.Config, exec, slo time.Duration) capacity.Range {
	return s.settings.Bounds(c, exec, slo, capacity.PerInstance)
}

// Queue says how requests reach instances.
func (s System) Queue() capacity.Queue { return s.queue }
