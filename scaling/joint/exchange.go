package joint

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

const (
	// Part is the part of a function's instances that are exchanged at once. If a larger
	// part of its load is unserved anyway, that part is. See allowance.
	Part = 0.1
	// An exchange must bring one of two gains, each as a part of the value before:
	// valueGain for the value of the emptied nodes, or Gain for the function of which
	// the smallest part is served. That part never falls.
	valueGain, Gain = 0.05, 0.02
	// lastGain is either of them for an exchange of all instances of a function for others of its own. What carries more
	// does so by predicted times, which err by some percent. For 2 %, an instance with a whole core was exchanged for
	// two with half of it, which then carried less. Steady has headroom, so a function that lacks less than that still
	// serves its load.
	lastGain = 0.1
)

// ExchangeFunction is a function whose instances may be exchanged.
type ExchangeFunction struct {
	// Steady is the load to serve, and Least that load without headroom, in requests
	// per second.
	Steady, Least float64
	// Count is its number of instances. It may have at most Max, if that is not 0, and
	// at least Floor.
	Count, Max, Floor int
	Instances         []ExchangeInstance
	// Tenant says which devices may serve it.
	Tenant cluster.Tenant
	// Serves returns the rate that an instance serves, with room for chance or, if
	// crowded, without.
	Serves func(with capacity.Candidate, crowded bool) float64
	// Demand returns the function's demand of rps requests per second.
	Demand func(rps float64, crowded bool) Demand
}

// ExchangeInstance is an instance that runs or starts.
type ExchangeInstance struct {
	capacity.Candidate
	ID       cluster.InstanceID
	Node     string
	Device   string
	Starting bool
	// Divided: it is a set over several nodes. It stays, and the others are exchanged around it.
	Divided bool
}

// ExchangeMember is an instance and the index of its function.
type ExchangeMember struct {
	ExchangeInstance
	Function int
}

// ExchangeStart is an instance to start for the function with that index.
type ExchangeStart struct {
	placing.Placed
	Function int
}

// ExchangeStep is one step of exchanges. Do the stops first.
type ExchangeStep struct {
	Stop  []ExchangeMember
	Start []ExchangeStart
}

// swap is one attempt to exchange instances.
type swap struct {
	room      *placing.Room
	functions []ExchangeFunction
	step      ExchangeStep
	// crowded: no room is kept for chance. early: only instances that are still
	// starting may be exchanged.
	crowded, early bool
	// needs is the load of each function, has the rate that it serves, and prices the
	// value of one of its requests per second.
	needs, has, prices []float64
	// inside has the instances that could be exchanged, by place, and counts their number,
	// by function.
	inside map[int][]ExchangeMember
	counts []int
	work   *packing.Work
}

// TryExchange changes the instances of nodes to those of an ideal plan for all load. If
// that plan's whole instances serve no more than the present ones, it packs the worst
// nodes again, or only the worst one. It books its changes in the room. It reports whether
// there is anything to change. If the work is not enough for the ideal plan, it changes
// nothing: a rough plan is no reason to stop what serves.
func TryExchange(room *placing.Room, functions []ExchangeFunction, early bool, work *packing.Work) (ExchangeStep, bool) {
	x := &swap{room: room, functions: functions, early: early, work: work}
	found := x.try()
	return x.step, found
}

func (x *swap) try() bool {
	plan := x.idealPlan()
	if !plan.Rough && slices.ContainsFunc(x.functions, func(f ExchangeFunction) bool { return plan.Theta*f.Steady < f.Least }) {
		// Not even the load itself fits with room for chance.
		x.crowded = true
		plan = x.idealPlan()
	}
	if plan.Rough {
		return false
	}
	part := x.worstServed(x.has)
	x.prices = plan.Prices
	if x.worstServed(plan.Served) >= part*(1+Gain) && x.migrate(plan) {
		return true
	}
	if x.early || plan.Theta < part*(1+Gain) {
		return false
	}
	worst, few := x.worst(plan), x.allowance()
	var places []int
	for _, i := range worst {
		if x.mayStop(few, x.inside[i]) {
			x.take(few, x.inside[i])
			places = append(places, i)
		}
	}
	if len(places) > 0 && x.replace(places) {
		return true
	}
	// One node may be too much and still the only way.
	return len(worst) > 0 && !slices.Equal(places, worst[:1]) && x.replace(worst[:1])
}

// ideal is a plan for everything that the functions need, on places without instances.
type ideal struct {
	*Problem
	packing.Solution
	classes []Class
}

func (x *swap) idealPlan() ideal {
	x.observe()
	problem, _ := x.ask(func(k int) float64 { return x.needs[k] })
	classes, s := problem.Solve(x.emptied(nil))
	return ideal{problem, s, classes}
}

// ask returns the problem of what the functions need, and the indexes of the functions
// that need something.
func (x *swap) ask(need func(k int) float64) (p *Problem, of []int) {
	var demands []Demand
	for k := range x.functions {
		if n := need(k); n > 0 {
			demands, of = append(demands, x.functions[k].Demand(n, x.crowded)), append(of, k)
		}
	}
	return New(Thrift{Crowded: x.crowded, Work: x.work}, demands), of
}

// serves is the rate that an instance serves.
func (x *swap) serves(in *ExchangeMember) float64 {
	return x.functions[in.Function].Serves(in.Candidate, x.crowded)
}

// observe sets needs, has, inside and counts from the functions. It leaves out places with
// instances that must stay.
func (x *swap) observe() {
	x.inside, x.needs, x.has, x.counts = map[int][]ExchangeMember{}, nil, nil, make([]int, len(x.functions))
	fixed := map[int]bool{}
	for k, f := range x.functions {
		has := 0.0
		for _, in := range f.Instances {
			m := ExchangeMember{in, k}
			has += x.serves(&m)
			i, ok := x.room.Find(in.Node)
			if !ok || in.Divided {
				continue
			}
			x.inside[i] = append(x.inside[i], m)
			fixed[i] = fixed[i] || x.early != in.Starting || len(x.room.Places[i].Leaving) > 0
		}
		x.needs, x.has = append(x.needs, max(f.Steady, capacity.SomeLoad)), append(x.has, has)
	}
	for i := range fixed {
		if fixed[i] {
			delete(x.inside, i)
		}
		for _, in := range x.inside[i] {
			x.counts[in.Function]++
		}
	}
}
