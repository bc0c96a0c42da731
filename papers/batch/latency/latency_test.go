package latency

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A batch has at most two requests. Arrivals are Poisson with λ = 20/s and T = 50 ms,
// so λT = 1: e⁻¹ of the batches have one request, which takes T + 12 ms. In the others
// the last request does not wait (14 ms). The first waits for the next gap: 14 ms + t
// with density 20e^{−20t}. The mean batch is 2 − e⁻¹.
func TestTwoRequestsByHand(t *testing.T) {
	b := Buffer{arrival.Poisson(20), 2, 0.05, []float64{0.012, 0.014}}
	d, err := b.Exact()
	if err != nil {
		t.Fatal(err)
	}
	e := math.Exp(-1)
	size := 2 - e
	near(t, "mean batch", d.MeanBatch(), size, 1e-12)
	near(t, "alone", d.Batches()[0], e, 1e-12)
	full := func(wait float64) float64 { return ((1 - e) + 1 - math.Exp(-20*wait)) / size }
	for _, c := range [][2]float64{{0.0139, 0}, {0.014, (1 - e) / size}, {0.024, full(0.01)}, {0.0619, full(0.0479)}, {0.062, full(0.048) + e/size}, {0.064, 1}, {1, 1}} {
		near(t, "CDF", d.CDF(c[0]), c[1], 1e-9)
	}
	near(t, "median", d.Quantile(0.5), 0.014-math.Log(1-(size/2-(1-e)))/20, 1e-9)
	near(t, "p95", d.Quantile(0.95), 0.062, 1e-12)
	near(t, "all", d.Quantile(1), 0.064, 1e-6)
	near(t, "first", d.Quantile(0), 0.014, 1e-12)
	// The first of two waits for 1/20 − (T + 1/20)e⁻¹ on average, over all batches.
	near(t, "mean", d.Mean(), (e*0.062+2*(1-e)*0.014+0.05-0.1*e)/size, 1e-9)
}

func TestNothingToWaitFor(t *testing.T) {
	for _, b := range []Buffer{
		{arrival.Poisson(10), 1, 0.05, []float64{0.012}},
		{arrival.MMPP2(1, 100, 1, 1), 8, 0, []float64{0.012, 1, 1, 1, 1, 1, 1, 1}},
	} {
		for name, of := range map[string]func() (*Distribution, error){"exact": b.Exact, "with": func() (*Distribution, error) { return b.With(Reality{}) }} {
			d, err := of()
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []float64{-1, 0, 0.01, 0.5, 0.99, 1, 2, math.NaN()} {
				near(t, name, d.Quantile(q), 0.012, 0)
			}
			near(t, name, d.Mean(), 0.012, 1e-15)
			near(t, name, d.MeanBatch(), 1, 0)
			near(t, name, d.CDF(0.0119), 0, 0)
			near(t, name, d.CDF(0.012), 1, 0)
		}
	}
}

// The test covers timeouts of very many gaps and of almost none, phases of very
// different rates, and many requests in a batch. The densities' integrals are known,
// so their errors are, too.
func TestExtremeBuffers(t *testing.T) {
	erlang := func(n int) arrival.MAP {
		d0, d1 := make([][]float64, n), make([][]float64, n)
		for i := range n {
			d0[i], d1[i] = make([]float64, n), make([]float64, n)
			d0[i][i] = -float64(n)
			if i+1 < n {
				d0[i][i+1] = float64(n)
			}
		}
		d1[n-1][0] = float64(n)
		m, err := arrival.New(d0, d1)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, b := range map[string]Buffer{
		"long":        {arrival.Poisson(1e6), 8, 100, nil},
		"bursty":      {arrival.MMPP2(1e-3, 5000, 1e-3, 0.1), 20, 50, nil},
		"short":       {arrival.Poisson(1), 20, 1e-9, nil},
		"large":       {arrival.Poisson(1000), 256, 0.25, nil},
		"in series":   {erlang(8), 6, 4.5, nil},
		"full almost": {arrival.Poisson(100), 64, 0.6, nil},
	} {
		a, err := NewAnalysis(b.Arrivals, b.Batch)
		if err != nil {
			t.Fatal(err)
		}
		w, err := a.Waits(b.Batch, b.Timeout)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, p := range w.Batches() {
			sum += p
		}
		near(t, name+": all batches", sum, 1, 1e-9)
		off := a.solve(w, a.last)
		t.Logf("%s: %d panels, off by %.1g", name, len(a.last.level), off)
		near(t, name+": densities", off, 0, precise)
		b.Service = make([]float64, b.Batch)
		d, err := w.Serve(b.Service)
		if err != nil {
			t.Fatal(err)
		}
		near(t, name+": all", d.CDF(b.Timeout), 1, 1e-9)
		if m := d.Mean(); !(m >= 0 && m <= b.Timeout) {
			t.Errorf("%s: mean %v", name, m)
		}
	}
}

// F_R never falls, a quantile is where F_R reaches q, and the mean is the integral
// above F_R.
func TestDistributionsHangTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for i := range 6 {
		b := randomBuffer(r, 1+i%3)
		for name, of := range map[string]func() (*Distribution, error){"exact": b.Exact, "spread": func() (*Distribution, error) {
			return b.With(Reality{Spread: 0.3})
		}} {
			d, err := of()
			if err != nil {
				t.Fatal(err)
			}
			const steps = 500
			last, above, high := 0.0, 0.0, d.Quantile(1)
			for n := range steps {
				f := d.CDF(high * (float64(n) + 0.5) / steps)
				if f < last-1e-6 {
					t.Fatalf("%s: falls from %v to %v", name, last, f)
				}
				last = f
				above += (1 - f) * high / steps
			}
			near(t, name+": mean", above/d.Mean(), 1, 2e-2)
			for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999} {
				at := d.Quantile(q)
				if after, before := d.CDF(at*(1+1e-6)), d.CDF(at*(1-1e-6)); after < q-1e-9 || before > q+1e-9 {
					t.Errorf("%s: the quantile %v is %v, between %v and %v", name, q, at, before, after)
				}
			}
		}
	}
}

func TestBuffersRefuse(t *testing.T) {
	fine := Buffer{arrival.Poisson(10), 2, 0.1, []float64{1, 2}}
	for says, change := range map[string]func(*Buffer){
		"there is none":  func(b *Buffer) { b.Arrivals = arrival.MAP{} },
		"finite":         func(b *Buffer) { b.Arrivals = arrival.Poisson(math.NaN()) },
		"batch size":     func(b *Buffer) { b.Batch = 0 },
		"timeout of -1":  func(b *Buffer) { b.Timeout = -1 },
		"timeout of NaN": func(b *Buffer) { b.Timeout = math.NaN() },
		"shortest gaps":  func(b *Buffer) { b.Timeout = 1e13 },
		"timeout of +":   func(b *Buffer) { b.Timeout = math.Inf(1) },
		"1 execution":    func(b *Buffer) { b.Service = []float64{1} },
		"batch of 2 is":  func(b *Buffer) { b.Service = []float64{1, -1} },
	} {
		b := fine
		change(&b)
		for _, of := range []func() (*Distribution, error){b.Exact, func() (*Distribution, error) { return b.With(Reality{}) }} {
			if _, err := of(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
	}
	for says, r := range map[string]Reality{
		"spread":       {Spread: -1},
		"-1 instances": {Instances: -1},
		"too few":      {Instances: 10},
	} {
		if _, err := fine.With(r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", r, err, says)
		}
	}
	a, err := NewAnalysis(fine.Arrivals, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Waits(5, 1); err == nil {
		t.Error("larger than the analysis is for")
	}
	if _, err := NewAnalysis(fine.Arrivals, -1); err == nil {
		t.Error("a negative batch size")
	}
}

func FuzzExact(f *testing.F) {
	f.Add(10.0, 120.0, 0.05, 0.05, 20, 0.1, 0.04, 0.03)
	f.Add(1e-3, 1e3, 1e-6, 10.0, 5, 1e3, 0.0, -0.01)
	f.Fuzz(func(t *testing.T, l1, l2, w12, w21 float64, batch int, timeout, first, slope float64) {
		if batch > 24 {
			return
		}
		b := Buffer{arrival.MMPP2(l1, l2, w12, w21), batch, timeout, nil}
		for k := range max(0, batch) {
			b.Service = append(b.Service, first+slope*float64(k))
		}
		d, err := b.Exact()
		if err != nil {
			return
		}
		for _, q := range []float64{0.5, 0.95, 0.99} {
			if v := d.Quantile(q); math.IsNaN(v) || v < 0 {
				t.Fatalf("the quantile %v is %v", q, v)
			}
		}
		if m := d.Mean() + d.MeanBatch(); math.IsNaN(m) {
			t.Fatal(m)
		}
	})
}

// The benchmark is one evaluation, as in M4 and R2 of the vectors.
func BenchmarkExact(b *testing.B) {
	for _, v := range vectors(b) {
		if v.B != 20 {
			continue
		}
		b.Run(v.Name, func(b *testing.B) {
			buffer := v.buffer(b)
			for b.Loop() {
				d, err := buffer.Exact()
				if err != nil {
					b.Fatal(err)
				}
				d.Quantile(0.5)
				d.Quantile(0.95)
				d.Quantile(0.99)
			}
		})
	}
}

// The benchmark is the work of an optimiser: 28 sizes, 49 timeouts, 20 batch sizes.
func BenchmarkOptimise(b *testing.B) {
	m := arrival.MMPP2(10, 120, 0.05, 0.05)
	for b.Loop() {
		a, err := NewAnalysis(m, 20)
		if err != nil {
			b.Fatal(err)
		}
		service := make([]float64, 20)
		for step := range 49 {
			for batch := 1; batch <= 20; batch++ {
				w, err := a.Waits(batch, 0.01*float64(step))
				if err != nil {
					b.Fatal(err)
				}
				for size := range 28 {
					for k := range service {
						service[k] = (0.044 + 0.034*float64(k)) * 10 / float64(10+size)
					}
					d, err := w.Serve(service)
					if err != nil {
						b.Fatal(err)
					}
					d.Quantile(0.95)
				}
			}
		}
	}
}
