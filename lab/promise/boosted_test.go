package promise

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The quantiles of a normal distribution whose mean and deviation depend on the features are known.
func TestBoostedQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	mean := func(x features) float64 { return 0.5*x[0] - x[1] }
	deviation := func(x features) float64 { return 0.05 + 0.1*x[1] }
	const n = 4000
	x, y := make([]features, n), make([]float64, n)
	draw := func() (features, float64) {
		at := features{float64(r.IntN(4)), 0.25 * float64(1+r.IntN(4)), r.Float64()}
		return at, mean(at) + deviation(at)*r.NormFloat64()
	}
	for i := range x {
		x[i], y[i] = draw()
	}
	for _, q := range []float64{0.5, 0.9, 0.95} {
		e := boost(x, y, q)
		below, off := 0, 0.0
		for range n {
			at, value := draw()
			predicted := e.of(at)
			if value <= predicted {
				below++
			}
			want := mean(at) + deviation(at)*math.Sqrt2*math.Erfinv(2*q-1)
			off += math.Abs(predicted-want) / n
		}
		if got := float64(below) / n; math.Abs(got-q) > 0.025 {
			t.Errorf("%.3f of the values are below the %v quantile", got, q)
		}
		if off > 0.12 {
			t.Errorf("the %v quantile is wrong by %.3f on average", q, off)
		}
	}
}
