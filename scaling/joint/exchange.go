package joint

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

const (
	// Part is the part of the instances that are exchanged at once, if
	// no larger part of the load is left over anyway.
	Part = 0.1
	// valueGain is how much more than before the emptied nodes must be
	// worth, as a part of it, or Gain how much more the function must
	// get of which the smallest part is served, which never gets less.
	valueGain, Gain = 0.05, 0.02
)

// ExchangeFunction is one that may have its instances exchanged.
type ExchangeFunction struct {
	// Steady is the load that it is to serve, and Least the part of it that is no
	// headroom, in requests per second.
	Steady, Least float64
	// Count is how many instances it has; it may have no more than Max, if that is
	// not 0, and no fewer than Floor.
	Count, Max, Floor int
	Instances         []ExchangeInstance
	// Serves is what an instance serves, with room for chance or crowded.
	Serves func(with capacity.Candidate, crowded bool) float64
	// Demand is the function's demand of so many requests per second.
	Demand func(rps float64, crowded bool) Demand
}

// ExchangeInstance is one that runs, or starts.
type ExchangeInstance struct {
	capacity.Candidate
	ID       cluster.InstanceID
	Node     string
	Starting bool
}

// ExchangeMember is an instance and the index of its function.
type ExchangeMember struct {
	ExchangeInstance
	Function int
}

// ExchangeStart is an instance that is to be started, for the function of that index.
type ExchangeStart struct {
	placing.Placed
	Function int
}

// ExchangeStep is what is exchanged at once. The stops come first.
type ExchangeStep struct {
	Stop  []ExchangeMember
	Start []ExchangeStart
}

// swap is one try to exchange instances.
type swap struct {
	room      *placing.Room
	functions []ExchangeFunction
	step      ExchangeStep
	// crowded: nothing is kept for chance. early: only instances that are still
	// starting may be exchanged.
	crowded, early bool
	// needs is what each function is to serve, has what it does, prices what a
	// request per second of it is worth.
	needs, has, prices []float64
	// inside are the instances that could be exchanged, by place.
	inside map[int][]ExchangeMember
	// total counts them.
	total int
}

// TryExchange brings nodes to what an ideal plan for everything has on them, or, if that
// plan's whole instances are no better than what there is, exchanges the worst
// nodes' instances, or else the worst node's. Its changes are taken from and given
// to the room. It reports whether there is anything to change.
func TryExchange(room *placing.Room, functions []ExchangeFunction, early bool) (ExchangeStep, bool) {
	x := &swap{room: room, functions: functions, early: early}
	found := x.try()
	return x.step, found
}

func (x *swap) try() bool {
	plan := x.ideally()
	if slices.ContainsFunc(x.functions, func(f ExchangeFunction) bool { return plan.Theta*f.Steady < f.Least }) {
		// Not even the load itself finds room with what is kept for chance.
		x.crowded = true
		plan = x.ideally()
	}
	part := x.part(x.has)
	x.prices = plan.Prices
	if x.part(plan.Served) >= part*(1+Gain) && x.migrate(plan) {
		return true
	}
	if x.early || plan.Theta < part*(1+Gain) {
		return false
	}
	worst := x.worst(plan)
	budget := x.budget()
	n, count := 0, 0
	for n < len(worst) && (n == 0 || float64(count+len(x.inside[worst[n]])) <= budget) {
		count += len(x.inside[worst[n]])
		n++
	}
	return n > 0 && (x.replace(worst[:n]) || n > 1 && x.replace(worst[:1]))
}

// budget is how many instances are exchanged at once.
func (x *swap) budget() float64 {
	if x.early {
		return float64(x.total)
	}
	return max(Part, 1-x.part(x.has)) * float64(x.total)
}

// ideal is a plan for all that the functions need, on places without instances.
type ideal struct {
	*Problem
	packing.Solution
	classes []Class
}

func (x *swap) ideally() ideal {
	x.look()
	problem, _ := x.ask(func(k int) float64 { return x.needs[k] })
	classes, s := problem.Solve(x.emptied(nil))
	return ideal{problem, s, classes}
}

// ask is the problem of what the functions need, and which those are that need
// something.
func (x *swap) ask(need func(k int) float64) (p *Problem, of []int) {
	var demands []Demand
	for k := range x.functions {
		if n := need(k); n > 0 {
			demands, of = append(demands, x.functions[k].Demand(n, x.crowded)), append(of, k)
		}
	}
	return New(Thrift{Crowded: x.crowded}, demands), of
}

// serves is what an instance serves.
func (x *swap) serves(in *ExchangeMember) float64 {
	return x.functions[in.Function].Serves(in.Candidate, x.crowded)
}

// look takes in what is served and could be exchanged. Where there is not enough
// for what is asked for now, what was asked for before does not count.
func (x *swap) look() {
	x.inside, x.needs, x.has, x.total = map[int][]ExchangeMember{}, nil, nil, 0
	fixed := map[int]bool{}
	for k, f := range x.functions {
		has := 0.0
		for _, in := range f.Instances {
			m := ExchangeMember{in, k}
			has += x.serves(&m)
			i, ok := x.room.Find(in.Node)
			if !ok {
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
		x.total += len(x.inside[i])
	}
}
