// Package exchange has instances make room for others that serve more, where all nodes
// are full and load is left over: functions grew one by one, so nodes hold what was best
// when there was room. The nodes that are worth least at the prices of an ideal plan for
// everything are emptied and packed anew, a few at a time, and only if what they hold is
// worth a good deal more then, or the function that is worst off gains. As no exchange
// takes from that one, exchanges come to an end. Where the ideal plan is better as it
// is, in whole instances, nodes become what it has on them, a few at a time; it stays
// the same as long as the load does, so that comes to an end, too.
package exchange

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
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

// Function is one that may have its instances exchanged.
type Function struct {
	// Steady is the load that it is to serve, and Least the part of it that is no
	// headroom, in requests per second.
	Steady, Least float64
	// Count is how many instances it has; it may have no more than Max, if that is
	// not 0, and no fewer than Floor.
	Count, Max, Floor int
	Instances         []Instance
	// Serves is what an instance serves, with room for chance or crowded.
	Serves func(with capacity.Candidate, crowded bool) float64
	// Demand is the function's demand of so many requests per second.
	Demand func(rps float64, crowded bool) joint.Demand
}

// Instance is one that runs, or starts.
type Instance struct {
	capacity.Candidate
	ID       cluster.InstanceID
	Node     string
	Starting bool
}

// Member is an instance and the index of its function.
type Member struct {
	Instance
	Function int
}

// Start is an instance that is to be started, for the function of that index.
type Start struct {
	placing.Placed
	Function int
}

// Step is what is exchanged at once. The stops come first.
type Step struct {
	Stop  []Member
	Start []Start
}

// swap is one try to exchange instances.
type swap struct {
	room      *placing.Room
	functions []Function
	step      Step
	// crowded: nothing is kept for chance. early: only instances that are still
	// starting may be exchanged.
	crowded, early bool
	// needs is what each function is to serve, has what it does, prices what a
	// request per second of it is worth.
	needs, has, prices []float64
	// inside are the instances that could be exchanged, by place.
	inside map[int][]Member
	// total counts them.
	total int
}

// Try brings nodes to what an ideal plan for everything has on them, or, if that
// plan's whole instances are no better than what there is, exchanges the worst
// nodes' instances, or else the worst node's. What it changes is taken from and given
// to the room. It reports whether there is anything to change.
func Try(room *placing.Room, functions []Function, early bool) (Step, bool) {
	x := &swap{room: room, functions: functions, early: early}
	found := x.try()
	return x.step, found
}

func (x *swap) try() bool {
	plan := x.ideally()
	if slices.ContainsFunc(x.functions, func(f Function) bool { return plan.Theta*f.Steady < f.Least }) {
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
	*joint.Problem
	packing.Solution
	classes []joint.Class
}

func (x *swap) ideally() ideal {
	x.look()
	problem, _ := x.ask(func(k int) float64 { return x.needs[k] })
	classes, s := problem.Solve(x.emptied(nil))
	return ideal{problem, s, classes}
}

// ask is the problem of what the functions need, and which those are that need
// something.
func (x *swap) ask(need func(k int) float64) (p *joint.Problem, of []int) {
	var demands []joint.Demand
	for k := range x.functions {
		if n := need(k); n > 0 {
			demands, of = append(demands, x.functions[k].Demand(n, x.crowded)), append(of, k)
		}
	}
	return joint.New(joint.Thrift{Crowded: x.crowded}, demands), of
}

// serves is what an instance serves.
func (x *swap) serves(in *Member) float64 {
	return x.functions[in.Function].Serves(in.Candidate, x.crowded)
}

// look takes in what is served and could be exchanged. Where there is not enough
// for what is asked for now, what was asked for before does not count.
func (x *swap) look() {
	x.inside, x.needs, x.has, x.total = map[int][]Member{}, nil, nil, 0
	fixed := map[int]bool{}
	for k, f := range x.functions {
		has := 0.0
		for _, in := range f.Instances {
			m := Member{in, k}
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
