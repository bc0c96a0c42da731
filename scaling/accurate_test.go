package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The example of MostAccurate's comment, and budgets around it.
func TestMostAccurate(t *testing.T) {
	f := []Graded{{Load: 10, Grades: []Grade{{80, 5}, {70, 1}, {76, 2}, {71, 1.9}, {69, 1}}}}
	for _, c := range []struct {
		budget float64
		want   Blend
	}{
		{-1, Blend{70, 70, 1}}, {0.5, Blend{70, 70, 1}}, {1, Blend{70, 70, 1}}, {1.5, Blend{76, 70, 0.5}},
		{2, Blend{76, 70, 1}}, {3.5, Blend{80, 76, 0.5}}, {5, Blend{80, 76, 1}}, {100, Blend{80, 76, 1}},
	} {
		if got := MostAccurate(f, c.budget); got[0] != c.want {
			t.Errorf("%v: %+v, want %+v", c.budget, got[0], c.want)
		}
	}
	if got := MostAccurate([]Graded{{Load: 1}}, 1); got[0] != (Blend{}) {
		t.Errorf("without grades: %+v", got)
	}
}

// With the same budget no other choice of grades or blends of two grades is more accurate.
func TestMostAccurateIsOptimal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		functions := make([]Graded, 2)
		least := 0.0
		for i := range functions {
			functions[i].Load = r.Float64() * 100
			cheapest := math.Inf(1)
			for range 1 + r.IntN(4) {
				g := Grade{60 + 30*r.Float64(), 1 + 5*r.Float64()}
				functions[i].Grades = append(functions[i].Grades, g)
				cheapest = min(cheapest, g.Cost)
			}
			least += cheapest
		}
		budget := least + 8*r.Float64()
		worth, cost := 0.0, 0.0
		for i, b := range MostAccurate(functions, budget) {
			worth += functions[i].Load * b.Mean()
			for _, g := range functions[i].Grades {
				if g.Accuracy == b.Upper {
					cost += b.Part * g.Cost
				}
				if g.Accuracy == b.Lower && b.Part < 1 {
					cost += (1 - b.Part) * g.Cost
				}
			}
		}
		if cost > budget+1e-9 {
			t.Fatalf("%+v: costs %v of %v", functions, cost, budget)
		}
		if best := enumerated(functions, budget); worth < best-1e-6 {
			t.Fatalf("%+v, %v: %v, and %v is possible", functions, budget, worth, best)
		}
	}
}

// enumerated tries each grade of each of two functions, and a blend of two grades for one.
func enumerated(f []Graded, budget float64) (best float64) {
	for one := range f {
		other := 1 - one
		for _, fixed := range f[other].Grades {
			for _, a := range f[one].Grades {
				for _, b := range f[one].Grades {
					left, part := budget-fixed.Cost-a.Cost, 1.0
					if left < 0 {
						continue
					}
					if b.Cost > a.Cost {
						part = min(1, left/(b.Cost-a.Cost))
					}
					best = max(best, f[other].Load*fixed.Accuracy+f[one].Load*(a.Accuracy+part*(b.Accuracy-a.Accuracy)))
				}
			}
		}
	}
	return best
}

// mixed is the part of what f's instances serve that the precise variant does.
func mixed(f *Function) float64 {
	return carries(f, "precise") / max(carries(f, "precise", "rough"), 1e-9)
}

// A function that prefers accuracy is served by the precise variant as far as the node has room,
// although the rough one is cheaper. The rest is served by the rough one, and all load at any
// time.
func TestAccuracyIsPreferred(t *testing.T) {
	for _, c := range []struct{ rate, least, most float64 }{{1, 1, 1}, {600, 1, 1}, {900, 0.4, 0.9}, {1400, 0, 0.3}} {
		w, f := variantsWorld(4)
		f.Accurate = true
		w.load(f, c.rate/8, 30)
		w.load(f, c.rate, 400)
		if got := mixed(f); got < c.least || got > c.most {
			t.Errorf("%v/s: the precise variant serves %.2f of the load, want %v to %v; %vm in use", c.rate, got, c.least, c.most, cores(f))
		}
		if all := carries(f, "precise", "rough"); all < c.rate {
			t.Errorf("%v/s: the instances serve %v/s", c.rate, all)
		}
		if started, last := w.load(f, c.rate, 600); len(started) > 0 || len(last.Unplaced) > 0 {
			t.Errorf("%v/s: %d instances start under the same load, %+v", c.rate, len(started), last.Unplaced)
		}
	}
}

// The accuracy falls with the room that a load leaves, without load that is not served, and rises
// again.
func TestAccuracyFollowsTheRoom(t *testing.T) {
	w, f := variantsWorld(4)
	f.Accurate = true
	w.load(f, 100, 120)
	for _, rate := range []float64{300, 1400, 900, 100} {
		w.load(f, rate, 20)
		for range 400 {
			w.load(f, rate, 1)
			if all := carries(f, "precise", "rough"); all < rate {
				t.Fatalf("%v/s: the instances serve %v/s, %.2f of it precise", rate, all, mixed(f))
			}
		}
		if got := mixed(f); rate < 301 && got < 1 || rate > 1300 && got > 0.3 {
			t.Errorf("%v/s: the precise variant serves %.2f", rate, got)
		}
	}
}

// What another function needs is not taken for accuracy, and is given back.
func TestOthersComeBeforeAccuracy(t *testing.T) {
	w, f := variantsWorld(4)
	f.Accurate = true
	w.load(f, 350, 200)
	if got := mixed(f); got < 1 {
		t.Fatalf("the precise variant serves %.2f of the load alone", got)
	}
	g := w.function("g")
	g.SLO, g.Percentile, g.Queue = 200*ms, 99, capacity.LateBound
	for cpu := 100; cpu <= 1000; cpu += 100 {
		g.Configs = append(g.Configs, config(1, cpu, 0, 4*ms*1000/time.Duration(cpu)))
	}
	g.Rate, g.Waiting = 200, 1
	w.load(f, 350, 60)
	for range 300 {
		g.Waiting = 0
		_, last := w.load(f, 350, 1)
		if len(last.Unplaced) > 0 {
			t.Fatalf("%+v", last.Unplaced)
		}
	}
	served := 0.0
	for _, in := range g.Instances {
		if in.State == cluster.Ready {
			served += 1 / in.Exec.Seconds()
		}
	}
	if served < 200 || carries(f, "precise", "rough") < 350 {
		t.Errorf("g serves %v/s of 200, f %v/s of 350", served, carries(f, "precise", "rough"))
	}
}

// Requests that ask for the rough variant get it, and the others the precise one.
func TestAccuracyIsPreferredForTheRest(t *testing.T) {
	w, f := variantsWorld(16)
	f.Accurate = true
	f.Classes = []Class{{Artefacts: []string{"precise", "rough"}, Part: 0.6}, {Artefacts: []string{"rough"}, Part: 0.4}}
	w.load(f, 1000, 300)
	precise, rough := carries(f, "precise"), carries(f, "rough")
	if precise < 600 || precise > 950 || rough < 400 || rough > 650 {
		t.Errorf("the precise variant carries %v/s of 600, the rough one %v/s of 400", precise, rough)
	}
}

// The load goes up and down for hours: the accuracy returns with the room, and nothing is left
// unserved for longer than a start takes.
func TestAccuracyUnderChange(t *testing.T) {
	w, f := variantsWorld(4)
	f.Accurate = true
	w.load(f, 50, 60)
	r := rand.New(rand.NewPCG(3, 4))
	late := 0
	for range 40 {
		rate := 20 + 1300*r.Float64()
		for range 180 {
			w.load(f, rate, 1)
			if carries(f, "precise", "rough") < rate {
				late++
			}
		}
		if got := mixed(f); rate < 600 && got < 0.9 {
			t.Errorf("%v/s: the precise variant serves %.2f", rate, got)
		}
	}
	if late > 40*20 {
		t.Errorf("too little for %d s of 7,200", late)
	}
}
