package registration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/variant"
)

// random returns variants with few different values, so that many are equal.
func random(r *rand.Rand, n int) []Placed {
	rows := make([]Placed, n)
	for i := range rows {
		rows[i] = Placed{Variant: variant.Variant{
			Model: fmt.Sprint("m", r.IntN(3)), Name: fmt.Sprint("v", r.IntN(n+1)), Hardware: "cpu",
			Latency: time.Duration(1+r.IntN(9)) * time.Millisecond, Load: time.Duration(r.IntN(9)) * time.Millisecond,
			RPS: float64(1 + r.IntN(4)), Accuracy: float64(10 * r.IntN(11)), Cost: float64(r.IntN(5)),
		}, State: variant.State(r.IntN(4))}
	}
	return rows
}

// dominates reports whether a is at least as good as b in all, and better in one.
func dominates(a, b *variant.Variant) bool {
	return a.Accuracy >= b.Accuracy && a.Latency <= b.Latency && a.PerRequest() <= b.PerRequest() &&
		(a.Accuracy > b.Accuracy || a.Latency < b.Latency || a.PerRequest() < b.PerRequest())
}

// Exactly the dominated variants have a dominator, and it dominates them.
func FuzzDominators(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, uint8(5*seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		rows := random(rand.New(rand.NewPCG(seed, 1)), int(n))
		for i, by := range Dominators(rows) {
			if by >= 0 && !dominates(&rows[by].Variant, &rows[i].Variant) {
				t.Fatalf("%d does not dominate %d: %+v, %+v", by, i, rows[by], rows[i])
			}
			for k := range rows {
				if by < 0 && dominates(&rows[k].Variant, &rows[i].Variant) {
					t.Fatalf("%d dominates %d, and that is not said", k, i)
				}
			}
		}
	})
}

// Of Table 2's variants the GPU's is the fastest, Inferentia's costs less per request than the
// GPU's 0.02 × 1.5, and the CPU's is dominated.
func TestDominatorsOfTable2(t *testing.T) {
	ms := time.Millisecond
	row := func(name, hardware string, latency time.Duration, rps, cost float64, state variant.State) Placed {
		return Placed{variant.Variant{Model: "resnet50", Name: name, Hardware: hardware, Latency: latency, RPS: rps, Accuracy: 75, Cost: cost}, state}
	}
	rows := []Placed{
		row("A", "cpu", 200*ms, 5, 1, variant.Active),
		row("B", "inferentia", 20*ms, 100, 3, variant.Inactive),
		row("C", "gpu", 15*ms, 800, 16, variant.Inactive),
	}
	if by := Dominators(rows); by[0] < 0 || by[1] != 2 || by[2] != -1 {
		t.Errorf("dominators are %d", by)
	}
}
