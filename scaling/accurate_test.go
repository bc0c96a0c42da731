package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
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
