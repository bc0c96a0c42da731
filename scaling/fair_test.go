package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The test has the examples of divide's documentation.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name           string
		needs, weights []float64
		total          float64
		want           []float64
	}{
		{"2 cores each of 1.8, twice the weight", []float64{2, 2}, []float64{2, 1}, 1.8, []float64{0.6, 0.3}},
		{"the heavier needs little", []float64{0.5, 2}, []float64{2, 1}, 1.8, []float64{1, 0.65}},
		{"enough for all", []float64{0.5, 1}, []float64{2, 1}, 1.8, []float64{1, 1}},
		{"nothing is left", []float64{1, 1}, []float64{1, 3}, 0, []float64{0, 0}},
	} {
		for i, got := range shares(c.needs, c.weights, c.total) {
			if math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%s: the %d-th gets %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}

// Shares never exceed the total. No function gets less for its weight than another,
// unless it gets all it needs.
func FuzzShares(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(8)
		needs, weights := make([]float64, n), make([]float64, n)
		for i := range n {
			needs[i], weights[i] = 0.01+4*r.Float64(), math.Exp(4*r.Float64()-2)
		}
		total := 8 * r.Float64()
		parts := shares(needs, weights, total)
		sum := 0.0
		for i, part := range parts {
			sum += part * needs[i]
			for k, other := range parts {
				if part < 1-1e-9 && part*needs[i]/weights[i] < other*needs[k]/weights[k]*(1-1e-9) && other > 0 {
					t.Errorf("%d gets %v of %v, %d %v of %v; weights %v", i, part, needs[i], k, other, needs[k], weights)
				}
			}
		}
		if sum > total*(1+1e-9) {
			t.Errorf("%v of %v are given away", sum, total)
		}
	})
}
