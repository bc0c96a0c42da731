package latency

import (
	"math"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// With spread, F_R(t) is the mean over normal z of the exact F_R with all execution
// times longer by a factor e^{σz − σ²/2}. All requests of a batch share one factor,
// and batches are independent. The test sums four thousand steps of z.
func TestSpreadIsAMixture(t *testing.T) {
	for _, b := range []Buffer{
		{arrival.MMPP2(20, 200, 1, 2), 4, 0.05, []float64{.044, .048, .052, .056}},
		{arrival.Poisson(20), 3, 1, []float64{.05, .06, .2}},
		{arrival.Poisson(20), 1, 0, []float64{.05}},
	} {
		exact, err := b.Exact()
		if err != nil {
			t.Fatal(err)
		}
		for _, sigma := range []float64{0.1, 1} {
			d, err := b.With(Reality{Spread: sigma})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "mean", d.Mean()/exact.Mean(), 1, 1e-3)
			for _, q := range []float64{0.5, 0.95} {
				at := d.Quantile(q)
				// The quantile is off by as much of it as this says, where the density is.
				above, below := mixture(t, b, sigma, at*1.001), mixture(t, b, sigma, at*0.999)
				if above < q-1e-4 || below > q+1e-4 {
					t.Errorf("σ = %v: the quantile %v is %v, between %v and %v", sigma, q, at, below, above)
				}
			}
		}
	}
}

func mixture(t *testing.T, b Buffer, sigma, at float64) float64 {
	t.Helper()
	a, err := NewAnalysis(b.Arrivals, b.Batch)
	if err != nil {
		t.Fatal(err)
	}
	w, err := a.Waits(b.Batch, b.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	sum, all := 0.0, 0.0
	service := make([]float64, b.Batch)
	for n := range 4_000 {
		z := (float64(n)+0.5)/400 - 5
		weight := math.Exp(-z * z / 2)
		for k, s := range b.Service {
			service[k] = s * math.Exp(sigma*z-sigma*sigma/2)
		}
		d, err := w.Serve(service)
		if err != nil {
			t.Fatal(err)
		}
		sum += weight * d.CDF(at)
		all += weight
	}
	return sum / all
}

// M/D/1: requests that go alone to one instance wait ρS/(2(1 − ρ)) on average
// (Pollaczek and Khinchine): 0.8·0.1/(2·0.2) = 0.2 s. They execute for 0.1 s.
func TestOneInstanceByPollaczekKhinchine(t *testing.T) {
	d, err := Buffer{arrival.Poisson(8), 1, 0, []float64{0.1}}.With(Reality{Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mean", d.Mean(), 0.3, 0.01)
	// Who finds the instance free, 1 − ρ of all, waits for nothing.
	near(t, "no wait", d.CDF(0.1), 0.2, 0.01)
}
