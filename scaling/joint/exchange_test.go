package joint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

var exchangeOptions = capacity.Production()

// rates has the rates of a function's configs.
type rates map[cluster.Resources]float64

func res(cpu, gpu int) cluster.Resources {
	return cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}
}

func candidate(r cluster.Resources) capacity.Candidate {
	return capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: r}, Exec: time.Millisecond}
}

// function returns a function that needs rps requests per second on any node.
func function(rps float64, by rates, instances ...ExchangeInstance) ExchangeFunction {
	var kinds []cluster.Resources
	for r := range by {
		kinds = append(kinds, r)
	}
	slices.SortFunc(kinds, func(a, b cluster.Resources) int { return a.CPU*1000 + a.GPU - b.CPU*1000 - b.GPU })
	f := ExchangeFunction{Steady: rps, Least: rps, Count: len(instances), Instances: instances}
	f.Serves = func(with capacity.Candidate, _ bool) float64 {
		return by[with.Config.Keeping(candidate(res(0, 0)).Config).Resources]
	}
	f.Demand = func(rps float64, _ bool) Demand {
		d := Demand{Need: rps}
		for _, r := range kinds {
			d.Choices = append(d.Choices, capacity.Choice{Candidate: candidate(r), Range: capacity.Range{Up: by[r]}, Cost: exchangeOptions.Weigh(r)})
			d.Configs = append(d.Configs, candidate(r))
		}
		return d
	}
	return f
}

func at(id, node string, r cluster.Resources) ExchangeInstance {
	return ExchangeInstance{Candidate: candidate(r), ID: cluster.InstanceID(id), Node: node}
}

// room returns the nodes' free room beside the functions' instances.
func room(nodes, cpu, gpu int, functions []ExchangeFunction) *placing.Room {
	var all []cluster.Node
	for i := range nodes {
		n := cluster.Node{Name: fmt.Sprintf("n%02d", i), Total: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 64 << 30}}
		n.Free = n.Total
		for _, f := range functions {
			for _, in := range f.Instances {
				if in.Node == n.Name {
					n.Free = n.Free.Sub(in.Config.Resources)
				}
			}
		}
		all = append(all, n)
	}
	return placing.New(all, exchangeOptions)
}

func showExchange(s ExchangeStep) string {
	var all []string
	for _, m := range s.Stop {
		all = append(all, "-"+string(m.ID))
	}
	for _, x := range s.Start {
		all = append(all, fmt.Sprintf("+%d:%dm%d%%@%s", x.Function, x.Config.CPU, x.Config.GPU, x.Node))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestTry(t *testing.T) {
	// The first function can use cores or the GPU, the second cores alone.
	cores, half := res(2000, 0), res(1000, 50)
	either, only := rates{cores: 5, half: 10}, rates{cores: 10}
	two := func() []ExchangeFunction {
		return []ExchangeFunction{function(15, either, at("a", "n00", cores)), function(10, only, at("b", "n00", cores))}
	}
	const better = "+0:1000m50%@n00 +0:1000m50%@n00 -a"
	starting := func(f []ExchangeFunction, ids ...string) {
		for k := range f {
			for i := range f[k].Instances {
				f[k].Instances[i].Starting = slices.Contains(ids, string(f[k].Instances[i].ID))
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(f []ExchangeFunction)
		early  bool
		want   string
	}{
		{"cores are taken that the GPU could spare", nil, false, better},
		{"all is served", func(f []ExchangeFunction) { f[0].Steady, f[0].Least = 5, 5 }, false, ""},
		{"no more instances are allowed", func(f []ExchangeFunction) { f[0].Max = 1 }, false, ""},
		{"two instances are allowed", func(f []ExchangeFunction) { f[0].Max = 2 }, false, better},
		{"instances that start stay", func(f []ExchangeFunction) { starting(f, "a") }, false, ""},
		{"early, only those that start are exchanged", func(f []ExchangeFunction) { starting(f, "a") }, true, ""},
		{"early, where all of a node start", func(f []ExchangeFunction) { starting(f, "a", "b") }, true, better},
		{"an instance has other memory than new ones", func(f []ExchangeFunction) { f[1].Instances[0].Config.Memory = 200 << 20 }, false, better},
		{"beside an instance's memory there is room for one", func(f []ExchangeFunction) { f[1].Instances[0].Config.Memory = 64<<30 - 150<<20 }, false, "+0:1000m50%@n00 -a"},
		{"an instance on a node that is gone is nobody's room", func(f []ExchangeFunction) { f[0].Instances[0].Node = "gone" }, false, "+0:1000m50%@n00 +0:1000m50%@n00"},
	} {
		functions := two()
		if c.change != nil {
			c.change(functions)
		}
		r := room(1, 4000, 100, functions)
		before := r.Clone()
		step, found := TryExchange(r, functions, c.early, nil)
		if got := showExchange(step); got != c.want || found != (got != "") {
			t.Errorf("%s: %v, %q, want %q", c.name, found, got, c.want)
		}
		freed := cluster.Resources{}
		for _, m := range step.Stop {
			freed = freed.Add(m.Config.Resources)
		}
		for _, s := range step.Start {
			freed = freed.Sub(s.Config.Resources)
		}
		if r.Places[0].Free != before.Places[0].Free.Add(freed) {
			t.Errorf("%s: the room is %+v", c.name, r.Places[0].Free)
		}
	}
}

// If an instance is already leaving a node, the node's instances stay.
func TestLeaving(t *testing.T) {
	cores := res(2000, 0)
	functions := []ExchangeFunction{function(15, rates{cores: 5, res(1000, 50): 10}, at("a", "n00", cores)), function(10, rates{cores: 10}, at("b", "n00", cores))}
	r := room(1, 4000, 100, functions)
	r.Places[0].Leaving = []cluster.InstanceID{"x"}
	if step, found := TryExchange(r, functions, false, nil); found {
		t.Error(showExchange(step))
	}
}

// Of many badly filled nodes, a few are exchanged at a time. After all steps, no
// further exchange is worth it.
func TestAFewAtATime(t *testing.T) {
	cores, half := res(2000, 0), res(1000, 50)
	var a, b []ExchangeInstance
	for i := range 40 {
		n := fmt.Sprintf("n%02d", i)
		a, b = append(a, at("a"+n, n, cores)), append(b, at("b"+n, n, cores))
	}
	f := []ExchangeFunction{function(596, rates{cores: 14, half: 7.5}, a...), function(400, rates{cores: 10}, b...)}
	for steps := 1; ; steps++ {
		step, found := TryExchange(room(40, 4000, 100, f), f, false, nil)
		if !found {
			if steps < 3 {
				t.Errorf("it took %d steps", steps-1)
			}
			break
		}
		most := max(Part, 1-served(&f[0])/f[0].Steady) * 80
		if n := float64(len(step.Stop)); n > most+2 {
			t.Errorf("step %d stops %v instances, more than %v", steps, n, most)
		}
		if f = carriedOut(f, step, steps); steps > 40 {
			t.Fatal("it takes no end")
		}
	}
	for k := range f {
		if got := served(&f[k]); got*(1+Gain) < f[k].Steady {
			t.Errorf("function %d gets %v of %v", k, got, f[k].Steady)
		}
	}
}

func served(f *ExchangeFunction) float64 {
	sum := 0.0
	for _, in := range f.Instances {
		sum += f.Serves(in.Candidate, false)
	}
	return sum
}

// carriedOut returns the functions after a step.
func carriedOut(functions []ExchangeFunction, s ExchangeStep, n int) []ExchangeFunction {
	functions = slices.Clone(functions)
	for k := range functions {
		f := &functions[k]
		f.Instances = slices.DeleteFunc(slices.Clone(f.Instances), func(in ExchangeInstance) bool {
			return slices.ContainsFunc(s.Stop, func(m ExchangeMember) bool { return m.ID == in.ID })
		})
		for i, x := range s.Start {
			if x.Function == k {
				f.Instances = append(f.Instances, at(fmt.Sprintf("s%d.%d", n, i), x.Node, x.Config.Resources))
			}
		}
		f.Count = len(f.Instances)
	}
	return functions
}

// randomExchange returns a fleet on which functions grew one after the other.
func randomExchange(seed uint64) (nodes, cpu, gpu int, functions []ExchangeFunction) {
	r := rand.New(rand.NewPCG(seed, 2))
	nodes, cpu, gpu = 1+r.IntN(6), 1000*(2+r.IntN(7)), 100*r.IntN(2)
	free := make([]cluster.Resources, nodes)
	for i := range free {
		free[i] = res(cpu, gpu).Add(cluster.Resources{Memory: 32 << 30})
	}
	for k := range 1 + r.IntN(3) {
		by := rates{}
		for range 1 + r.IntN(4) {
			by[res(500*(1+r.IntN(8)), 10*r.IntN(6))] = 1 + float64(r.IntN(300))/7
		}
		f := function(1, by)
		kinds := f.Demand(1, false).Configs
		for n := range r.IntN(12) {
			i, c := r.IntN(nodes), kinds[r.IntN(len(kinds))]
			if c.Config.Resources.Fits(free[i]) {
				free[i] = free[i].Sub(c.Config.Resources)
				f.Instances = append(f.Instances, at(fmt.Sprintf("f%d.%d", k, n), fmt.Sprintf("n%02d", i), c.Config.Resources))
			}
		}
		f.Count = len(f.Instances)
		f.Steady = math.Exp(7 * r.Float64())
		f.Least = f.Steady * (0.7 + 0.3*r.Float64())
		f.Floor = min(f.Count, r.IntN(3))
		if r.IntN(4) == 0 {
			f.Max = f.Count + r.IntN(4)
		}
		functions = append(functions, f)
	}
	return nodes, cpu, gpu, functions
}

// least is the smallest part of its load that any function gets.
func least(functions []ExchangeFunction) float64 {
	part := 1.0
	for k := range functions {
		part = min(part, served(&functions[k])/functions[k].Steady)
	}
	return part
}

// Whatever runs: a step stops running instances, each once, and fills no node beyond
// its room. No function gets more instances than allowed. The smallest served part
// hardly falls meanwhile. The steps come to an end.
func FuzzExchanges(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		nodes, cpu, gpu, functions := randomExchange(seed)
		const mostSteps = 100
		for n := range mostSteps {
			r := room(nodes, cpu, gpu, functions)
			step, found := TryExchange(r, functions, false, nil)
			if !found || len(step.Stop)+len(step.Start) == 0 {
				if found {
					t.Errorf("step %d changes nothing", n)
				}
				if len(step.Stop)+len(step.Start) > 0 {
					t.Errorf("found nothing, and has %s", showExchange(step))
				}
				return
			}
			before := least(functions)
			count := 0
			for _, x := range functions {
				count += x.Count
			}
			next := carriedOut(functions, step, n)
			for k, x := range next {
				if x.Max > 0 && x.Count > max(x.Max, functions[k].Count) {
					t.Errorf("step %d: function %d has %d instances of at most %d: %s", n, k, x.Count, x.Max, showExchange(step))
				}
				count -= x.Count
			}
			if count != len(step.Stop)-len(step.Start) {
				t.Errorf("step %d: %s stops what does not run", n, showExchange(step))
			}
			for i, place := range room(nodes, cpu, gpu, next).Places {
				if f := place.Free; f.CPU < 0 || f.GPU < 0 || f.Memory < 0 || f != r.Places[i].Free {
					t.Errorf("step %d: %s has %+v free, and %+v was said: %s", n, place.Name, f, r.Places[i].Free, showExchange(step))
				}
			}
			if after := least(next); after < before*(1-Part)-1e-9 {
				t.Errorf("step %d: the worst off gets %v, and %v before: %s", n, after, before, showExchange(step))
			}
			functions = next
		}
		t.Errorf("no end after %d steps", mostSteps)
	})
}

// A function that has nearly nothing gets room a little at a time. Meanwhile the others are served.
func TestOthersAreServedMeanwhile(t *testing.T) {
	cores, half, core := res(2000, 0), res(500, 50), res(1000, 0)
	var a, b []ExchangeInstance
	for i := range 40 {
		n := fmt.Sprintf("n%02d", i)
		a, b = append(a, at("a"+n, n, cores)), append(b, at("b"+n, n, cores))
	}
	c := []ExchangeInstance{at("c", "n00", core)}
	f := []ExchangeFunction{function(560, rates{cores: 14, half: 7.5}, a...), function(400, rates{cores: 10}, b[1:]...), function(300, rates{core: 6}, c...)}
	steps := 0
	for ; steps <= 20; steps++ {
		step, found := TryExchange(room(40, 4000, 100, f), f, false, nil)
		if !found {
			break
		}
		meanwhile := carriedOut(f, ExchangeStep{Stop: step.Stop}, steps)
		for k := range f {
			if before, left := served(&f[k]), served(&meanwhile[k]); left < before*(1-Part) {
				t.Errorf("step %d: function %d serves %v, and %v meanwhile", steps, k, before, left)
			}
		}
		f = carriedOut(f, step, steps)
	}
	if got := least(f); steps > 20 || got < 0.95 {
		t.Errorf("after %d steps the worst off gets %v", steps, got)
	}
}

// A function's only instance is not exchanged for a few percent, within which predictions err.
func TestOnlyInstanceStaysForALittleMore(t *testing.T) {
	whole, half := res(1000, 0), res(500, 0)
	for _, c := range []struct {
		each float64
		want string
	}{{52, ""}, {54, ""}, {60, "+0:500m0%@n00 +0:500m0%@n00 -a"}} {
		functions := []ExchangeFunction{function(120, rates{whole: 100, half: c.each}, at("a", "n00", whole))}
		step, _ := TryExchange(room(1, 1000, 0, functions), functions, false, nil)
		if got := showExchange(step); got != c.want {
			t.Errorf("two with %v/s each in the room of one with 100/s: %q, want %q", c.each, got, c.want)
		}
	}
}
