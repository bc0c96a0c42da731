package packing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// The textbook's example of cutting stock (Chvátal, Linear Programming, ch. 13,
// after Gilmore and Gomory): from rolls of 100 inches, 97 of 45 inches, 610 of 36,
// 395 of 31 and 211 of 14 are cut. The program needs 452.25 rolls, whole rolls 453.
func TestGilmoreAndGomory(t *testing.T) {
	p := Problem{
		Demands: []float64{97, 610, 395, 211},
		Classes: []Class{{Free: cluster.Resources{CPU: 100}, Count: 1000, Cost: 1}},
	}
	for k, width := range []int{45, 36, 31, 14} {
		p.Items = append(p.Items, Item{Demands: []int{k}, Rate: 1, Need: cluster.Resources{CPU: width}})
	}
	s, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if s.Cost < 452.25-1e-6 || s.Cost > 452.25*(1+gap) || s.Theta != 1 {
		t.Errorf("the program needs %v rolls and serves %v, want 452.25 and 1", s.Cost, s.Theta)
	}
	if n := nodes(s); n > 454 {
		t.Errorf("%d rolls are cut, want 453, or one more", n)
	}
	p.Classes[0].Count = 100
	theta, err := Bound(p)
	if want := 100 / 452.25; err != nil || math.Abs(theta-want) > gap*want {
		t.Errorf("100 rolls bear %v of it, %v; want %v", theta, err, want)
	}
}

func nodes(s Solution) int {
	n := 0
	for _, f := range s.Filled {
		n += f.Count
	}
	return n
}

// random returns a small problem, with memory that may run short, nodes that are in
// use, and demands that no item serves.
func random(r *rand.Rand) Problem {
	var p Problem
	for range 1 + r.IntN(4) {
		p.Demands = append(p.Demands, math.Floor(r.ExpFloat64()*100))
	}
	for range r.IntN(12) {
		p.Items = append(p.Items, Item{
			Demands: []int{r.IntN(len(p.Demands))}, Rate: 1 + r.ExpFloat64()*30, Cost: float64(r.IntN(2)) * r.Float64(),
			Need: cluster.Resources{CPU: 250 * (1 + r.IntN(8)), GPU: 10 * r.IntN(4), Memory: r.Int64N(3 << 30), GPUMemory: r.Int64N(2) * r.Int64N(3<<30)},
		})
	}
	for range 1 + r.IntN(3) {
		p.Classes = append(p.Classes, Class{
			Free:  cluster.Resources{CPU: r.IntN(9000) - 500, GPU: 50 * r.IntN(3), Memory: r.Int64N(16 << 30), GPUMemory: r.Int64N(11 << 30)},
			Count: r.IntN(6), Cost: float64(r.IntN(3)),
		})
	}
	return p
}

// share lets some items serve one more demand.
func (p Problem) share(r *rand.Rand) {
	for i := range p.Items {
		if k := r.IntN(len(p.Demands)); r.IntN(2) > 0 && k != p.Items[i].Demands[0] {
			p.Items[i].Demands = append(p.Items[i].Demands, k)
		}
	}
}

// bar lets some classes bar some demands.
func (p Problem) bar(r *rand.Rand) {
	for j := range p.Classes {
		if p.Classes[j].Barred = make([]bool, len(p.Demands)); r.IntN(3) > 0 {
			for k := range p.Demands {
				p.Classes[j].Barred[k] = r.IntN(2) > 0
			}
		}
	}
}

// verify fails if a solution over-fills a node or puts a barred item on it, uses more
// nodes than there are, or serves something other than Served.
func (p Problem) verify(t *testing.T, s Solution) (cost float64) {
	t.Helper()
	left := map[int]int{}
	for j, c := range p.Classes {
		left[j] = c.Count
	}
	served := make([]float64, len(p.Demands))
	for _, f := range s.Filled {
		var used cluster.Resources
		cost += float64(f.Count) * p.Classes[f.Class].Cost
		for _, u := range f.Uses {
			it := p.Items[u.Item]
			if p.Classes[f.Class].bars(&it) {
				t.Fatalf("demands %d on a node that bars one of them", it.Demands)
			}
			for range u.Count {
				used = used.Add(it.Need)
			}
			cost += float64(f.Count*u.Count) * it.Cost
			it.serve(served, f.Count*u.Count)
		}
		if left[f.Class] -= f.Count; left[f.Class] < 0 || !used.Fits(p.Classes[f.Class].Free) {
			t.Fatalf("%+v in nodes of %+v", f, p.Classes[f.Class])
		}
	}
	for k, x := range s.Served {
		if math.Abs(x-served[k]) > 1e-6*(1+x) {
			t.Fatalf("demand %d: %v are served, it says %v", k, served[k], x)
		}
	}
	return cost
}

// part is the smallest served part of all demands.
func (p Problem) part(s Solution) float64 {
	least := math.Inf(1)
	for k, d := range p.Demands {
		if d > 0 {
			least = min(least, s.Served[k]/d)
		}
	}
	return least
}

// No node is ever over-full, and the same problem has the same solution. The served
// part is within the bound. If there is room, everything is served, at no less than
// the program's cost.
func FuzzSolve(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := random(rand.New(rand.NewPCG(seed, 1)))
		if seed%2 == 1 {
			p.bar(rand.New(rand.NewPCG(seed, 2)))
		}
		if seed%4 >= 2 {
			p.share(rand.New(rand.NewPCG(seed, 3)))
		}
		s, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		cost := p.verify(t, s)
		bound, err := Bound(p)
		if err != nil {
			t.Fatal(err)
		}
		if part := p.part(s); part > bound*(1+1e-6) && part > 1+1e-6 && part > bound*10 {
			t.Errorf("%v is served, the bound is %v", part, bound)
		}
		if part := min(1, p.part(s)); part > bound*(1+1e-6) {
			t.Errorf("%v of all is served, the bound is %v", part, bound)
		}
		if p.part(s) >= 1 && s.Theta == 1 && cost < s.Cost*(1-2*gap)-1e-6 {
			t.Errorf("costs %v, the program %v", cost, s.Cost)
		}
		if again, _ := Solve(p); !reflect.DeepEqual(s, again) {
			t.Error("the same problem has another solution")
		}
	})
}

// most is the largest part of all demands that whole instances on one node can serve,
// by trying everything.
func most(p Problem, free cluster.Resources, from int, served []float64) float64 {
	best := p.part(Solution{Served: served})
	for i := from; i < len(p.Items); i++ {
		if it := p.Items[i]; it.Need.Fits(free) {
			it.serve(served, 1)
			best = max(best, most(p, free.Sub(it.Need), i, served))
			it.serve(served, -1)
		}
	}
	return best
}

// On one node, the bound is at least the best of all packings, and the solution is
// close to that.
func TestOneNode(t *testing.T) {
	missed, n := 0.0, 0.0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := random(r)
		p.Classes = []Class{{Free: cluster.Resources{CPU: 2000 + 250*r.IntN(8), GPU: 50, Memory: 8 << 30, GPUMemory: 8 << 30}, Count: 1, Cost: 1}}
		for k := range p.Demands {
			p.Demands[k] = 1000 + 100*float64(r.IntN(10))
		}
		best := most(p, p.Classes[0].Free, 0, make([]float64, len(p.Demands)))
		bound, err := Bound(p)
		if err != nil || best > bound*(1+1e-6) {
			t.Fatalf("seed %d: %v is possible, the bound is %v, %v", seed, best, bound, err)
		}
		s, _ := Solve(p)
		if p.verify(t, s); best > 0 {
			missed += 1 - p.part(s)/best
			n++
		}
	}
	if missed/n > 0.13 {
		t.Errorf("on one node, %v of what is possible is missed on average, of %v problems", missed/n, n)
	}
}

// Of 100 requests/s, 30 ask for an accuracy that only the larger variant has. Both
// variants carry all of them, and the larger one the 30. It costs three times as much
// as the smaller one, which answers the rest.
func TestNestedDemands(t *testing.T) {
	p := Problem{
		Demands: []float64{100, 30},
		Items: []Item{
			{Demands: []int{0}, Rate: 10, Need: cluster.Resources{CPU: 1000}, Cost: 1},
			{Demands: []int{0, 1}, Rate: 10, Need: cluster.Resources{CPU: 1000}, Cost: 3},
		},
		Classes: []Class{{Free: cluster.Resources{CPU: 4000}, Count: 10}},
	}
	s, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if cost := p.verify(t, s); cost != 7+3*3 || s.Served[0] != 100 || s.Served[1] != 30 {
		t.Errorf("costs %v, serves %v, want seven of one and three of the other", cost, s.Served)
	}
	// With room for eight the same part of both demands is served: 80 of 100, and 24 of 30,
	// for which three are needed.
	p.Classes[0].Count = 2
	if s, err = Solve(p); err != nil || s.Served[0] != 80 || s.Served[1] != 30 {
		t.Errorf("%v: serves %v where there is room for eight", err, s.Served)
	}
}

func TestNonsense(t *testing.T) {
	good := Problem{
		Demands: []float64{1}, Items: []Item{{Demands: []int{0}, Rate: 1, Need: cluster.Resources{CPU: 1}}},
		Classes: []Class{{Free: cluster.Resources{CPU: 1}, Count: 1}},
	}
	for want, change := range map[string]func(p *Problem){
		"demand 0 is NaN":                  func(p *Problem) { p.Demands = []float64{math.NaN()} },
		"demand 0 is -1":                   func(p *Problem) { p.Demands = []float64{-1} },
		"item 0 serves the demands [3]":    func(p *Problem) { p.Items = []Item{{Demands: []int{3}}} },
		"item 0 serves no demand":          func(p *Problem) { p.Items = []Item{{}} },
		"one of the demands [0 0] twice":   func(p *Problem) { p.Items = []Item{{Demands: []int{0, 0}}} },
		"item 0 serves 0 requests":         func(p *Problem) { p.Items = []Item{{Demands: []int{0}}} },
		"item 0 needs neither CPU nor GPU": func(p *Problem) { p.Items = []Item{{Demands: []int{0}, Rate: 1}} },
		"item 0 has a negative need":       func(p *Problem) { p.Items = []Item{{Demands: []int{0}, Rate: 1, Need: cluster.Resources{CPU: -1}}} },
		"item 0 costs +Inf": func(p *Problem) {
			p.Items = []Item{{Demands: []int{0}, Rate: 1, Need: cluster.Resources{CPU: 1}, Cost: math.Inf(1)}}
		},
		"class 0 has -1 nodes":                 func(p *Problem) { p.Classes = []Class{{Count: -1}} },
		"class 0 has 1 nodes at a cost of NaN": func(p *Problem) { p.Classes = []Class{{Count: 1, Cost: math.NaN()}} },
	} {
		p := good
		change(&p)
		if _, err := Solve(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if _, err := Bound(p); err == nil {
			t.Errorf("%q has a bound", want)
		}
	}
	if _, err := Solve(good); err != nil {
		t.Error(err)
	}
}

// A demand that no item on the nodes serves makes the bound 0. The others are still
// served.
func TestHopelessDemand(t *testing.T) {
	p := Problem{
		Demands: []float64{10, 10, 0},
		Items: []Item{
			{Demands: []int{0}, Rate: 10, Need: cluster.Resources{CPU: 100}},
			{Demands: []int{1}, Rate: 10, Need: cluster.Resources{CPU: 9000}},
		},
		Classes: []Class{{Free: cluster.Resources{CPU: 1000}, Count: 1, Cost: 1}},
	}
	s, err := Solve(p)
	if err != nil || s.Theta != 0 || s.Served[0] != 10 || s.Served[1] != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if b, err := Bound(p); err != nil || b != 0 {
		t.Errorf("bound %v, %v", b, err)
	}
	if b, err := Bound(Problem{}); err != nil || !math.IsInf(b, 1) {
		t.Errorf("without demands: %v, %v", b, err)
	}
}

// A demand that cannot have more does not limit others: the second needs a GPU, of
// which there is little, the first only CPU.
func TestMaxMin(t *testing.T) {
	p := Problem{
		Demands: []float64{80, 100},
		Items: []Item{
			{Demands: []int{0}, Rate: 10, Need: cluster.Resources{CPU: 1000}},
			{Demands: []int{1}, Rate: 10, Need: cluster.Resources{CPU: 1000, GPU: 50}},
		},
		Classes: []Class{{Free: cluster.Resources{CPU: 10000, GPU: 100}, Count: 1, Cost: 1}},
	}
	s, err := Solve(p)
	if err != nil || fmt.Sprint(s.Served) != "[80 20]" {
		t.Errorf("%v are served, %v; want 80 and 20", s.Served, err)
	}
	if math.Abs(s.Theta-0.2) > 1e-6 {
		t.Errorf("θ is %v, want 0.2", s.Theta)
	}
}

// If only a much more expensive item has room, it is taken: most of the load beyond
// the cores goes to the one GPU.
func TestDearItemsServeWhatNothingElseCan(t *testing.T) {
	for _, dear := range []float64{1, 8, 30, 300, 30000} {
		p := Problem{
			Demands: []float64{100},
			Items: []Item{
				{Demands: []int{0}, Rate: 10, Need: cluster.Resources{CPU: 1000}, Cost: 1},
				{Demands: []int{0}, Rate: 10, Need: cluster.Resources{CPU: 100, GPU: 20}, Cost: dear},
			},
			Classes: []Class{{Free: cluster.Resources{CPU: 5500, GPU: 100}, Count: 1}},
		}
		s, err := Solve(p)
		if err != nil || s.Served[0] < 100-1e-6 || s.Theta != 1 {
			t.Errorf("%v times dearer: %v is served, θ %v, %v", dear, s.Served, s.Theta, err)
		}
	}
}

// The cost of items hardly changes how much can be served.
func TestWhatIsServedDoesNotDependOnCosts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		var p Problem
		for range 1 + r.IntN(3) {
			p.Demands = append(p.Demands, 1+math.Floor(r.ExpFloat64()*100))
		}
		for k := range p.Demands {
			for range 1 + r.IntN(3) {
				p.Items = append(p.Items, Item{Demands: []int{k}, Rate: 1 + r.ExpFloat64()*30, Cost: math.Pow(10, 4*r.Float64()),
					Need: cluster.Resources{CPU: 500 * (1 + r.IntN(4)), GPU: 20 * r.IntN(3)}})
			}
		}
		for range 1 + r.IntN(2) {
			p.Classes = append(p.Classes, Class{Free: cluster.Resources{CPU: 500 * r.IntN(20), GPU: 20 * r.IntN(6)}, Count: 1 + r.IntN(4)})
		}
		bound, err := Bound(p)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Relax(p)
		if most := min(1, bound); err != nil || s.Theta < most*0.95-1e-9 {
			t.Errorf("seed %d: θ %v of %v, %v", seed, s.Theta, most, err)
		}
	}
}
