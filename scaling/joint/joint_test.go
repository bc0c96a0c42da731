package joint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

var options = capacity.Production()

// choice returns a config that serves that many requests per second.
func choice(cpu, gpu int, rps float64) capacity.Choice {
	r := cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}
	c := capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: r}, Exec: time.Duration(float64(time.Second) / rps)}
	return capacity.Choice{Candidate: c, Range: capacity.Range{Up: rps}, Cost: options.Weigh(r)}
}

// demand returns a demand with these choices, on any node.
func demand(rps float64, choices ...capacity.Choice) Demand {
	d := Demand{Need: rps, Choices: choices}
	for _, c := range choices {
		d.Configs = append(d.Configs, c.Candidate)
	}
	return d
}

// nodes returns n nodes with that much CPU and GPU, all of it free.
func nodes(n, cpu, gpu int) []cluster.Node {
	var all []cluster.Node
	for i := range n {
		r := cluster.Resources{CPU: cpu, GPU: gpu, Memory: 64 << 30}
		all = append(all, cluster.Node{Name: fmt.Sprintf("n%02d", i), Total: r, Free: r})
	}
	return all
}

// show writes each demand's instances and the load that is left over.
func show(placements []placing.Placement) string {
	var all []string
	for _, p := range placements {
		var b strings.Builder
		for _, x := range p.Placed {
			fmt.Fprintf(&b, "%dm%d%%@%s ", x.Config.CPU, x.Config.GPU, x.Node)
		}
		if p.Reason != placing.None {
			fmt.Fprintf(&b, "%v of %.4g", p.Reason, p.Residual)
		}
		all = append(all, strings.TrimSpace(b.String()))
	}
	return strings.Join(all, "; ")
}

func TestPlace(t *testing.T) {
	// Of a node with four cores and a GPU, both functions get all they need if one
	// takes the cores and the other the GPU.
	either, cores := []capacity.Choice{choice(4000, 0, 20), choice(500, 50, 20)}, []capacity.Choice{choice(3000, 0, 30)}
	slow, fast := choice(4000, 0, 10), choice(500, 40, 10)
	for _, c := range []struct {
		name    string
		by      Thrift
		nodes   []cluster.Node
		demands []Demand
		want    string
	}{
		{"instances of different functions fill a node", Thrift{}, nodes(2, 4000, 100), []Demand{demand(40, either...), demand(30, cores...)},
			"500m50%@n00 500m50%@n00; 3000m0%@n00"},
		{"as few nodes as can be", Thrift{}, nodes(3, 4000, 100), []Demand{demand(20, slow, fast)}, "500m40%@n00 500m40%@n00"},
		{"lean: as few resources as can be", Thrift{Lean: true, Nodes: 2}, nodes(3, 4000, 100), []Demand{demand(20, slow, fast)}, "4000m0%@n00 4000m0%@n01"},
		{"nothing is asked for", Thrift{}, nodes(1, 4000, 0), nil, ""},
	} {
		room := placing.New(c.nodes, options)
		got := show(New(c.by, c.demands).Place(room))
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

func TestWhatIsLeftOver(t *testing.T) {
	on := func(d Demand, allowed ...bool) Demand { d.Allowed = placing.Only(allowed...); return d }
	one := choice(1000, 0, 10)
	hopeless := Demand{Need: 5, Configs: []capacity.Candidate{choice(2000, 0, 20).Candidate, choice(1000, 0, 10).Candidate}}
	room := placing.New(nodes(2, 2000, 0), options)
	placements := New(Thrift{}, []Demand{
		hopeless, on(demand(5, one), false, false), on(demand(30, one), false, true), demand(20, one),
	}).Place(room)
	want := []struct {
		reason   placing.Reason
		residual float64
	}{{placing.NoConfig, 5}, {placing.NoNode, 5}, {placing.NoRoom, 10}, {placing.None, 0}}
	for k, p := range placements {
		if p.Reason != want[k].reason || math.Abs(p.Residual-want[k].residual) > 1e-9 {
			t.Errorf("demand %d: %v of %v, want %v of %v", k, p.Reason, p.Residual, want[k].reason, want[k].residual)
		}
	}
	if f := placements[0].Fastest; f.Config.CPU != 2000 {
		t.Errorf("the fastest of those that are too slow is %v", f.Config)
	}
	for _, x := range placements[2].Placed {
		if x.Node != "n01" {
			t.Errorf("an instance is on %s, where it may not be", x.Node)
		}
	}
}

// Solve does not change the room; Place takes it.
func TestSolvingTakesNothing(t *testing.T) {
	room := placing.New(nodes(3, 4000, 0), options)
	before := room.Clone()
	p := New(Thrift{}, []Demand{demand(25, choice(1000, 0, 10))})
	classes, s := p.Solve(room)
	if !reflect.DeepEqual(room, before) || len(classes) != 1 || classes[0].Count != 3 || s.Theta != 1 {
		t.Errorf("%+v, %+v", classes, s)
	}
	for i := range p.items {
		if c := p.Choice(i); c.Config.Resources != p.Item(i).Need || c.Range.Up != p.Item(i).Rate {
			t.Errorf("item %d is %+v and stands for %+v", i, p.Item(i), c)
		}
	}
	p.Place(room)
	taken := 0
	for i := range room.Places {
		taken += before.Places[i].Free.CPU - room.Places[i].Free.CPU
	}
	if taken != 3000 {
		t.Errorf("%d millicores are taken", taken)
	}
}

func TestLean(t *testing.T) {
	one := choice(1000, 0, 10)
	ask := func(rps float64) func() *Problem {
		return func() *Problem { return New(Thrift{}, []Demand{demand(rps, one)}) }
	}
	used := func(n int) *placing.Room {
		room := placing.New(nodes(20, 4000, 0), options)
		for i := range n {
			room.Take(i, cluster.Resources{CPU: 1000}, cluster.Tenant{})
		}
		return room
	}
	for _, c := range []struct {
		name string
		room *placing.Room
		all  func() *Problem
		want Thrift
	}{
		// Of 20 nodes, three are kept for as much again.
		{"an empty fleet, and what takes two nodes and a half", used(0), ask(100), Thrift{Lean: true, Nodes: 17}},
		{"two of them are used", used(2), ask(100), Thrift{Lean: true, Nodes: 15}},
		{"no matter that more are used than are needed", used(12), ask(100), Thrift{Lean: true, Nodes: 5}},
		{"more are used than are to be", used(19), ask(100), Thrift{Lean: true, Nodes: -2}},
		{"too few nodes for as much again: one more than is needed", placing.New(nodes(4, 4000, 0), options), ask(100), Thrift{Lean: true, Nodes: 4}},
		{"eight nodes are few", used(0), ask(310), Thrift{Lean: true, Nodes: 12}},
		{"more than eight are many", used(0), ask(330), Thrift{}},
		{"there is no room for it", placing.New(nodes(1, 4000, 0), options), ask(50), Thrift{}},
		{"there are no nodes", placing.New(nil, options), ask(1), Thrift{}},
	} {
		if got := Lean(c.room, c.all().Least(c.room)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The number of nodes by cores alone counts nothing for a demand that needs no core: 100/s take a
// whole GPU, and as cores 100 nodes.
func TestLeastWithoutCores(t *testing.T) {
	room := placing.New(nodes(20, 4000, 100), options)
	p := New(Thrift{}, []Demand{demand(100, choice(0, 10, 10), choice(4000, 0, 1))})
	if got := p.Least(room); math.Abs(got-1) > 0.05 {
		t.Errorf("%v nodes, want 1", got)
	}
}

// The limit of new nodes is one for each kind: an instance goes where it costs least, whatever the
// nodes' names.
func TestLeanOnEachKind(t *testing.T) {
	gpu := nodes(1, 1000, 100)[0]
	plain := nodes(1, 4000, 0)[0]
	gpu.Name, plain.Name = "a-gpu", "b-plain"
	room := placing.New([]cluster.Node{gpu, plain}, options)
	p := New(Thrift{Lean: true, Nodes: 1}, []Demand{demand(10, choice(1000, 100, 10), choice(2000, 0, 10))})
	if got := p.Place(room)[0]; len(got.Placed) != 1 || got.Placed[0].Node != "b-plain" {
		t.Errorf("%+v", got.Placed)
	}
}

// If there are too many kinds of nodes, those with the most room count.
func TestManyKinds(t *testing.T) {
	var all []cluster.Node
	for i := range 3 * maxClasses {
		n := nodes(1, 1000+10*i, 0)[0]
		n.Name = fmt.Sprintf("n%03d", i)
		all = append(all, n)
	}
	room := placing.New(all, options)
	p := New(Thrift{}, []Demand{demand(100, choice(1000, 0, 10))})
	classes, _ := p.Solve(room)
	if len(classes) != maxClasses {
		t.Fatalf("%d kinds", len(classes))
	}
	for _, c := range classes {
		if c.Free.CPU < 1000+10*2*maxClasses {
			t.Errorf("a kind with %d millicores counts", c.Free.CPU)
		}
	}
	if got := p.Place(room)[0]; got.Reason != placing.None {
		t.Errorf("%v of %v", got.Reason, got.Residual)
	}
}

// random returns a partly used fleet and functions with demands.
func random(seed uint64) ([]cluster.Node, Thrift, []Demand) {
	r := rand.New(rand.NewPCG(seed, 1))
	fleet := nodes(1+r.IntN(8), 1000*(1+r.IntN(16)), 100*r.IntN(3))
	for i := range fleet {
		fleet[i].Free.CPU -= r.IntN(2) * r.IntN(fleet[i].Total.CPU+1)
	}
	var demands []Demand
	for range 1 + r.IntN(4) {
		var d Demand
		for range 1 + r.IntN(5) {
			d.Choices = append(d.Choices, choice(250*(1+r.IntN(16)), 10*r.IntN(6), 1+float64(r.IntN(400))/7))
		}
		d.Need = math.Exp(6 * r.Float64())
		if r.IntN(3) == 0 {
			on := make([]bool, len(fleet))
			for i := range on {
				on[i] = r.IntN(2) == 0
			}
			d.Allowed = placing.Only(on...)
		}
		demands = append(demands, d)
	}
	return fleet, Thrift{Lean: r.IntN(2) == 0, Nodes: r.IntN(9), Crowded: r.IntN(2) == 0}, demands
}

// Whatever the demands: no node is filled beyond its room. Instances are choices of
// their function on allowed nodes. The residual is the load that they do not serve.
// The same problem has the same solution.
func FuzzPlace(f *testing.F) {
	for seed := range uint64(80) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		fleet, by, demands := random(seed)
		room := placing.New(fleet, options)
		before := room.Clone()
		placements := New(by, demands).Place(room)
		if again := New(by, demands).Place(before.Clone()); !reflect.DeepEqual(again, placements) {
			t.Errorf("%s, and again\n%s", show(placements), show(again))
		}
		held := make([]cluster.Resources, len(fleet))
		for k, p := range placements {
			served := 0.0
			for _, x := range p.Placed {
				i, ok := room.Find(x.Node)
				if !ok || !demands[k].Allowed.Has(i) {
					t.Errorf("demand %d has an instance on %q", k, x.Node)
				}
				known := false
				for _, c := range demands[k].Choices {
					known = known || c.Candidate == x.Candidate && c.Range == x.Range
				}
				if !known {
					t.Errorf("demand %d has %v, which it did not choose", k, x.Config)
				}
				held[i], served = held[i].Add(x.Config.Resources), served+x.Range.Up
			}
			if left := max(0, demands[k].Need-served); math.Abs(left-p.Residual) > 1e-6 || (p.Residual > 0) != (p.Reason != placing.None) {
				t.Errorf("demand %d: %v of %v, while %v of %v are served", k, p.Reason, p.Residual, served, demands[k].Need)
			}
		}
		for i, at := range before.Places {
			if now := room.Places[i]; !held[i].Fits(at.Free) || now.Free != at.Free.Sub(held[i]) {
				t.Errorf("%s: %+v of %+v are taken, %+v are left", at.Name, held[i], at.Free, now.Free)
			}
		}
	})
}
