package latency

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// simulate simulates a buffer request by request. It returns the sorted latencies and
// the counts of batch sizes.
func simulate(b Buffer, r *rand.Rand, requests int) (latencies []float64, sizes []float64) {
	s := b.Arrivals.Sampler(r)
	sizes = make([]float64, b.Batch)
	var waiting []float64
	leave := func(at float64) {
		sizes[len(waiting)-1]++
		for _, came := range waiting {
			latencies = append(latencies, at-came+b.Service[len(waiting)-1])
		}
		waiting = waiting[:0]
	}
	for now := 0.0; len(latencies) < requests; {
		now += s.Seconds()
		if len(waiting) > 0 && now > waiting[0]+b.Timeout {
			leave(waiting[0] + b.Timeout)
		}
		if waiting = append(waiting, now); len(waiting) == b.Batch {
			leave(now)
		}
	}
	slices.Sort(latencies)
	return latencies, sizes
}

// randomMAP draws a process whose phases are short enough for a short simulation to
// see all of them.
func randomMAP(r *rand.Rand, order int) arrival.MAP {
	for {
		d0, d1 := make([][]float64, order), make([][]float64, order)
		for i := range order {
			d0[i], d1[i] = make([]float64, order), make([]float64, order)
			for j := range order {
				if r.IntN(3) > 0 && j != i {
					d0[i][j] = math.Exp(4*r.Float64() - 1)
				}
				if r.IntN(3) > 0 {
					d1[i][j] = math.Exp(6 * r.Float64())
				}
			}
			for j := range order {
				d0[i][i] -= d1[i][j]
				if j != i {
					d0[i][i] -= d0[i][j]
				}
			}
		}
		if m, err := arrival.New(d0, d1); err == nil {
			return m
		}
	}
}

// randomBuffer draws a buffer with a timeout between a tenth and a hundred mean gaps,
// and execution times that rise or do not.
func randomBuffer(r *rand.Rand, order int) Buffer {
	b := Buffer{Arrivals: randomMAP(r, order), Batch: 2 + r.IntN(24)}
	b.Timeout = math.Exp(r.Float64()*7-2.3) / b.Arrivals.Rate()
	first, slope := b.Timeout*math.Exp(4*r.Float64()-2), b.Timeout*math.Exp(5*r.Float64()-4)
	for k := range b.Batch {
		s := first + slope*float64(k)
		if order == 3 {
			s = first + slope*float64(r.IntN(b.Batch))
		}
		b.Service = append(b.Service, s)
	}
	return b
}

// agree compares a distribution with a simulation: the part of requests at the
// simulated percentiles.
func agree(t *testing.T, what string, d *Distribution, simulated []float64, within float64) {
	t.Helper()
	for _, q := range []float64{0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99} {
		at := simulated[int(q*float64(len(simulated)))]
		below, _ := slices.BinarySearch(simulated, at*(1-1e-6))
		upTo, _ := slices.BinarySearch(simulated, at*(1+1e-6))
		n := float64(len(simulated))
		// Beside an atom, F_R is anything between what it is before and after.
		low, high := d.CDF(at*(1-1e-6)), d.CDF(at*(1+1e-6))
		if !(low <= float64(below)/n+within && high >= float64(upTo)/n-within && low >= float64(below)/n-within && high <= float64(upTo)/n+within) {
			t.Errorf("%s: %v of the requests take up to %v, simulated %v", what, []float64{low, high}, at, []float64{float64(below) / n, float64(upTo) / n})
		}
	}
}

func TestExactAgreesWithSimulation(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for i := range 24 {
		b := randomBuffer(r, 1+i%4)
		d, err := b.Exact()
		if err != nil {
			t.Fatal(err)
		}
		simulated, sizes := simulate(b, r, 60_000)
		agree(t, "exact", d, simulated, 0.03)
		sum, count := 0.0, 0.0
		for k, n := range sizes {
			count += n
			sum += float64(k+1) * n
		}
		if got := d.MeanBatch() / (sum / count); math.Abs(got-1) > 0.05 {
			t.Errorf("batches of %v, simulated %v", d.MeanBatch(), sum/count)
		}
	}
}

func TestRealityAgreesWithSimulation(t *testing.T) {
	b := Buffer{arrival.MMPP2(20, 200, 1, 2), 8, 0.05, []float64{.044, .048, .052, .056, .06, .064, .068, .072}}
	for _, c := range []struct {
		name string
		r    Reality
	}{
		{"spread", Reality{Spread: 0.1}},
		{"wide spread", Reality{Spread: 0.5}},
		{"two instances", Reality{Instances: 2, Spread: 0.1}},
		{"three instances", Reality{Instances: 3}},
	} {
		d, err := b.With(c.r)
		if err != nil {
			t.Fatal(err)
		}
		simulated := serve(b, c.r, rand.New(rand.NewPCG(31, 32)), 200_000)
		agree(t, c.name, d, simulated, 0.02)
		worst := 0.0
		for _, q := range []float64{0.5, 0.95, 0.99} {
			worst = max(worst, math.Abs(d.Quantile(q)/simulated[int(q*float64(len(simulated)))]-1))
		}
		t.Logf("%s: percentiles are off by %.2f %%", c.name, 100*worst)
		sum := 0.0
		for _, l := range simulated {
			sum += l
		}
		if got := d.Mean() / (sum / float64(len(simulated))); math.Abs(got-1) > 0.03 {
			t.Errorf("%s: mean %v, simulated %v", c.name, d.Mean(), sum/float64(len(simulated)))
		}
	}
}

// serve simulates reality.
func serve(b Buffer, reality Reality, r *rand.Rand, requests int) (latencies []float64) {
	free := make([]float64, max(reality.Instances, 1))
	var waiting []float64
	leave := func(at float64) {
		takes := b.Service[len(waiting)-1] * math.Exp(reality.Spread*r.NormFloat64()-reality.Spread*reality.Spread/2)
		first := 0
		for i, f := range free {
			if f < free[first] {
				first = i
			}
		}
		if reality.Instances > 0 {
			at = max(at, free[first])
		}
		free[first] = at + takes
		for _, came := range waiting {
			latencies = append(latencies, at+takes-came)
		}
		waiting = waiting[:0]
	}
	s := b.Arrivals.Sampler(r)
	for now := 0.0; len(latencies) < requests; {
		now += s.Seconds()
		if len(waiting) > 0 && now > waiting[0]+b.Timeout {
			leave(waiting[0] + b.Timeout)
		}
		if waiting = append(waiting, now); len(waiting) == b.Batch {
			leave(now)
		}
	}
	slices.Sort(latencies)
	return latencies
}
