package latency

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// line returns times of batches of 1 to n.
func line(n int, first, each float64) []float64 {
	times := make([]float64, n)
	for k := range times {
		times[k] = first + each*float64(k)
	}
	return times
}

// busyBy returns the buffer with execution times such that instances are busy for that
// part of the time.
func busyBy(t *testing.T, b Buffer, instances int, busy float64) Buffer {
	t.Helper()
	w, err := b.waits()
	if err != nil {
		t.Fatal(err)
	}
	factor := busy * float64(instances) / w.Busy(b.Arrivals.Rate(), b.Service)
	times := make([]float64, len(b.Service))
	for k, s := range b.Service {
		times[k] = s * factor
	}
	b.Service = times
	return b
}

// The analysis for a bounded number of instances agrees with a long play of the queue:
// percentiles within 3 %, or within the play's own error if arrivals are bursty.
func TestAmongAgreesWithPlay(t *testing.T) {
	poisson, bursty := arrival.Poisson(100), arrival.MMPP2(20, 200, 1, 2)
	for _, c := range []struct {
		name         string
		b            Buffer
		r            Reality
		busy, within float64
	}{
		{"M/D/1", Buffer{poisson, 1, 0, line(1, 1, 0)}, Reality{Instances: 1}, 0.7, 0.02},
		{"M/D/4", Buffer{poisson, 1, 0, line(1, 1, 0)}, Reality{Instances: 4}, 0.8, 0.02},
		{"M/D/20", Buffer{poisson, 1, 0, line(1, 1, 0)}, Reality{Instances: 20}, 0.9, 0.02},
		{"one, batches", Buffer{poisson, 8, 0.04, line(8, 1, 0.1)}, Reality{Instances: 1}, 0.7, 0.03},
		{"three, batches", Buffer{poisson, 8, 0.04, line(8, 1, 0.1)}, Reality{Instances: 3}, 0.8, 0.03},
		{"three, steep", Buffer{poisson, 8, 0.04, line(8, 1, 1)}, Reality{Instances: 3}, 0.8, 0.03},
		{"three, spread", Buffer{poisson, 8, 0.04, line(8, 1, 0.2)}, Reality{Instances: 3, Spread: 0.2}, 0.8, 0.03},
		{"two, wide spread", Buffer{poisson, 4, 0.02, line(4, 1, 0.2)}, Reality{Instances: 2, Spread: 0.5}, 0.7, 0.05},
		{"bursty", Buffer{bursty, 8, 0.05, line(8, 1, 0.1)}, Reality{Instances: 3}, 0.6, 0.05},
		{"bursty, one", Buffer{bursty, 8, 0.05, line(8, 1, 0.1)}, Reality{Instances: 1}, 0.5, 0.05},
		{"bursty, ten", Buffer{bursty, 4, 0.02, line(4, 1, 0.1)}, Reality{Instances: 10, Spread: 0.1}, 0.7, 0.05},
	} {
		b := busyBy(t, c.b, c.r.Instances, c.busy)
		began := time.Now()
		d, err := b.With(c.r)
		if err != nil {
			t.Fatal(c.name, err)
		}
		took := time.Since(began)
		w, err := b.bounded(c.r)
		if err != nil {
			t.Fatal(err)
		}
		played := b.queue(w, c.r, min(2_000_000, b.requests(c.busy)))
		off := [3]float64{}
		for i, q := range []float64{0.5, 0.95, 0.99} {
			off[i] = 100 * (d.Quantile(q)/played.Quantile(q) - 1)
		}
		t.Logf("%-18s %8v  p50 %+.2f %%, p95 %+.2f %%, p99 %+.2f %%, mean %+.2f %%", c.name, took.Round(10*time.Microsecond), off[0], off[1], off[2], 100*(d.Mean()/played.Mean()-1))
		for _, x := range off {
			if math.Abs(x) > 100*c.within {
				t.Errorf("%s: a percentile is off by %.1f %%", c.name, x)
			}
		}
	}
}

// With more instances than are ever needed, the distribution is the exact one without
// a bound.
func TestAmongManyIsExact(t *testing.T) {
	b := Buffer{arrival.MMPP2(20, 200, 1, 2), 8, 0.05, line(8, 0.04, 0.004)}
	exact, err := b.Exact()
	if err != nil {
		t.Fatal(err)
	}
	d, err := b.With(Reality{Instances: 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99, 0.999} {
		near(t, "quantile", d.Quantile(q)/exact.Quantile(q), 1, 1e-3)
	}
	near(t, "mean", d.Mean()/exact.Mean(), 1, 1e-3)
}
