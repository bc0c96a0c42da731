package batch

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// seen is the input of BATCH's optimiser about a function's requests and the machines.
type seen struct {
	// rate is the load in requests per second. recorded has the gaps to which
	// arrivals was fitted. room is nil if every batch has an instance.
	rate float64
	// arrivals is the process fitted to the requests; nil means Poisson.
	arrivals *arrival.MAP
	recorded []float64
	room     systems.Room
	// present is the config of the function's instances, and timeout its timeout.
	present cluster.Config
	timeout time.Duration
	// peak is the recent peak load, with the arrivals at that load.
	peak Objective
}

// tunerSearch implements [systems.Search].
type tunerSearch struct {
	tuner     *Tuner
	slo       time.Duration
	objective Objective
	shares    []Share
	configs   []cluster.Config
	// promised has [systems.System.Table]'s times by share.
	promised [][]time.Duration
	seen
	// none has the resources for which there is no room.
	none []cluster.Resources
	// now is when the search began. Another choice has been cheaper since since, and will
	// have been for long enough at due. Both are zero if no other choice is.
	now, since, due time.Time
	// list is the result. instances and phases are its values for [Tuner]. fit is the
	// number of instances for which there is room. short says that the result misses the
	// objective.
	list                   []capacity.Candidate
	instances, fit, phases int
	short                  bool
}

// optimise prepares the search for the config, batch size and timeout of all instances
// (BATCH §III-C). It searches for the cheapest choice, or with a budget the fastest, with
// the times' spread. It also searches for the least number of instances with which batches
// wait short enough. The optimiser gets the objective less the answer's way back. If no
// choice meets the objective, the result is the nearest one.
func optimise(s systems.System, f systems.Function, o seen, t systems.Times) *tunerSearch {
	var all []cluster.Config
	for _, c := range s.Predicted(f, t) {
		all = append(all, c.Config)
	}
	factor := s.Factor(f, t)
	if t.Spread() > 0 {
		factor = 1 // A margin stands for an unknown spread; this one is known.
	}
	x := &tunerSearch{slo: f.SLO, seen: o, objective: Objective{
		Arrivals: o.arrivals, Rate: o.rate, Recorded: o.recorded,
		SLO: f.SLO - batching.Travel(f.SLO), Quantile: f.Quantile(), Budget: BudgetOf(f), Spread: t.Spread(),
	}}
	if x.objective.SLO <= 0 && x.objective.Budget <= 0 {
		x.objective.SLO = time.Second
	}
	x.shares, x.configs = Shares(all, func(c cluster.Config) []time.Duration { return systems.TableOf(f, c, t, factor) }, PricingOf(f))
	for _, c := range x.configs {
		x.promised = append(x.promised, s.Table(f, c, t))
	}
	x.none = bound(x.shares, x.configs, o.room)
	return x
}

// Run implements [systems.Search]. It limits the number of instances to those worth being held ready
// ([Ready]).
func (x *tunerSearch) Run() {
	if x.list != nil {
		return
	}
	plan, err := x.plan()
	if err != nil {
		return
	}
	best := plan.Best
	config := x.configs[best.Share]
	config.Batch = best.Batch
	exec := x.promised[best.Share][best.Batch-1]
	x.list = []capacity.Candidate{systems.Tolerated(capacity.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: best.Timeout}, x.slo)}
	// To the optimiser an instance that executes k batches at the same time is k instances.
	k := config.Streams()
	x.instances, x.phases = (min(best.Instances, Ready(best.Busy))+k-1)/k, plan.Phases
	x.fit, x.short = x.shares[best.Share].Instances/k, plan.Short != nil
}

// Take implements [systems.Search].
func (x *tunerSearch) Take() (list []capacity.Candidate, revision uint64) { return x.tuner.take(x) }
