package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// seen is what BATCH's optimiser is told of a function's requests and of the machines.
type seen struct {
	// rate is the load in requests per second, recorded are the gaps that the
	// function's Arrivals were fitted to; room is nil where every batch has an instance.
	rate     float64
	recorded []float64
	room     Room
	// present is what the function's instances have, timeout what goes with it.
	present cluster.Config
	timeout time.Duration
	// peak is the highest load of late, with the arrivals at that.
	peak otp.Objective
}

// Search is a search for what a system considers for a function: [Search.Run] takes its
// time, and nothing that it looks at changes meanwhile.
type Search struct {
	slo       time.Duration
	objective otp.Objective
	shares    []otp.Share
	configs   []cluster.Config
	// promised are [System.Table]'s times by share.
	promised [][]time.Duration
	seen
	// none is what there is no room for.
	none []cluster.Resources
	// now is when it began. Something else than instances have has cost less since then;
	// at due it has for long enough. Neither is set if nothing has.
	now, since, due time.Time
	// list is what was found, instances and phases what [Tuner] says of it; fit is for how
	// many there is room, short says that it does not meet the objective.
	list                   []capacity.Candidate
	instances, fit, phases int
	short                  bool
}

// optimise prepares the search for the config, batch size and timeout of all instances
// (BATCH §III-C): the cheapest, or with a budget the fastest, with the times' spread, and
// with the least number of instances before which batches wait short enough. The
// optimiser is told of what is left of the objective once an answer has its way back.
// Where no choice meets the objective, it is the one that comes nearest.
func (s System) optimise(f Function, o seen, t Times) *Search {
	var all []cluster.Config
	for _, c := range s.predicted(f, t) {
		all = append(all, c.Config)
	}
	factor := s.factor(f, t)
	if t.Spread() > 0 {
		factor = 1 // A margin is for the unknown, and this is known.
	}
	x := &Search{slo: f.SLO, seen: o, objective: otp.Objective{
		Arrivals: f.Arrivals, Rate: o.rate, Recorded: o.recorded,
		SLO: f.SLO - batching.Travel(f.SLO), Quantile: f.quantile(), Budget: f.Budget, Spread: t.Spread(),
	}}
	if x.objective.SLO <= 0 && x.objective.Budget <= 0 {
		x.objective.SLO = time.Second
	}
	x.shares, x.configs = Shares(all, func(c cluster.Config) []time.Duration { return s.table(f, c, t, factor) }, f.price())
	for _, c := range x.configs {
		x.promised = append(x.promised, s.Table(f, c, t))
	}
	x.none = bound(x.shares, x.configs, o.room)
	return x
}

// Run searches. No more instances are held ready than are worth it ([otp.Ready]).
func (x *Search) Run() {
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
	x.list = []capacity.Candidate{tolerated(capacity.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: best.Timeout}, x.slo)}
	x.instances, x.phases = min(best.Instances, otp.Ready(best.Busy)), plan.Phases
	x.fit, x.short = x.shares[best.Share].Instances, plan.Short != nil
}
