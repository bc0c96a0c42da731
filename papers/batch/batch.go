// Package batch is BATCH (SC 2020) beside the core: the system and the batching policy of that name, the
// optimiser of batch size, timeout and resources (§III-C), and the tuner that asks it as a function's
// load changes. It does not gather requests: [batching.Buffer] does, with the batch size and timeout of
// its instances. It is pure. Begin with [Tuner], then [Solve]; package latency is the analysis behind it,
// and arrival the process of the requests.
//
// Importing the package registers the policy, the system and the annotation of a budget.
package batch

import (
	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Name is the name of the batching policy and of the system.
const Name = "batch"

// keepAlive is how long the system keeps idle instances (INFless §5.1).
const keepAlive = coldstart.DefaultKeepAlive

func init() {
	annotation.Register(annotation.Key{Name: BudgetKey, Set: setBudget, Agree: checkBudget})
	batching.Register(batching.Kind{Name: Name, Tuned: true, New: func(o batching.Options) batching.Policy { return batching.NewBuffer(o) }})
	systems.Register(systems.New(Name, "BATCH atop OpenFaaS: one config, batch size and timeout for all instances, from its optimiser, kept alive for 300 s", systems.Rules{
		Settings: settings(), Cold: "fixed", Batching: Name, Queue: capacity.LateBound, Margin: 1.1, Choose: uniform,
		Tuner: func(s systems.System, f systems.Function, t systems.Times) systems.Tuner { return NewTuner(s, f, t) },
	}))
}

// settings returns the settings of OpenFaaS and BATCH: as many instances as the load needs,
// where Kubernetes' scheduler puts them by default, each with its own keep-alive. INFless'
// Fig. 17 shows that the places are Kubernetes': BATCH has fewer fragments with INFless'
// placement.
func settings() scaling.Settings {
	s := scaling.DefaultSettings()
	s.Options, s.KeepAlive = capacity.Greedy(), keepAlive
	s.HalfSLO, s.Placement = false, capacity.Spread
	return s
}

// own is the price of a cluster's resources, βc + g.
var own = Cluster{Beta: capacity.DefaultBeta}

// PricingOf returns a function's pricing of resources, βc + g if it has none.
func PricingOf(f systems.Function) systems.Pricing {
	if f.Price == nil {
		return own
	}
	return f.Price
}

// uniform considers only the config, with batch size and timeout, that BATCH's optimiser
// finds for the arrivals.
func uniform(s systems.System, f systems.Function, rate float64, t systems.Times) []capacity.Candidate {
	x := optimise(s, f, seen{rate: rate}, t)
	x.Run()
	return x.list
}
