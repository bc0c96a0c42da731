package correction

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// streams are times over predictions that do not change in distribution.
func streams(r *rand.Rand) map[string]func(int) float64 {
	return map[string]func(int) float64{
		"steady":    func(int) float64 { return 1.3 + 0.01*r.Float64() },
		"normal":    func(int) float64 { return max(0.2, 1+0.1*r.NormFloat64()) },
		"lognormal": func(int) float64 { return 0.9 * math.Exp(0.3*r.NormFloat64()) },
		"tail":      func(int) float64 { return 0.8 + 0.3*r.ExpFloat64() },
		"two modes": func(int) float64 {
			if r.IntN(10) == 0 {
				return 2.5
			}
			return 1
		},
	}
}

// For every distribution, at least the quantile of the executions stays below the corrected
// time. That time is not much above the quantile, and it does not swing.
func TestQuantileIsKept(t *testing.T) {
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99} {
		r := rand.New(rand.NewPCG(7, uint64(1000*q)))
		for name, stream := range streams(r) {
			s := newSeries(profile(0), q, 1000, 2)
			s.run(3000, stream)
			s.changes = 0
			below, n := 0, 20000
			sample := make([]float64, n)
			s.run(n, func(i int) float64 {
				sample[i] = stream(i)
				if sample[i] <= s.times() {
					below++
				}
				return sample[i]
			})
			slices.Sort(sample)
			quantile := max(lowestFactor, sample[int(q*float64(n))])
			if share := float64(below) / float64(n); share < q-0.15*(1-q) {
				t.Errorf("%s: %.4f of the executions are below the %v-quantile's time", name, share, q)
			}
			if got := s.times(); got > 1.2*quantile {
				t.Errorf("%s: the time is %.3f, the %v-quantile %.3f", name, got, q, quantile)
			}
			if s.changes > n/1000 {
				t.Errorf("%s at %v: %d changes in %d executions of the same distribution", name, q, s.changes, n)
			}
		}
	}
}

// Each end of ranks is wrong in at most one of twenty samples.
func TestRanksCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		n int
		q float64
	}{{60, 0.95}, {300, 0.95}, {1500, 0.99}, {20, 0.5}} {
		high, low := ranks(c.n, c.q)
		const trials = 2000
		tooLow, tooHigh := 0, 0
		for range trials {
			above := 0 // of n uniform numbers, those above the quantile
			for range c.n {
				if r.Float64() > c.q {
					above++
				}
			}
			if above <= high {
				tooLow++
			}
			if above > low {
				tooHigh++
			}
		}
		if most := int(trials * risk * 1.2); tooLow > most || tooHigh > most {
			t.Errorf("n = %d, q = %v: wrong in %d and %d of %d", c.n, c.q, tooLow, tooHigh, trials)
		}
	}
}

func TestStateIsKept(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 4)
	s.run(500, always(1.7))
	s.millicores, s.batch = 250, 1
	s.run(500, always(1.2))
	text, err := json.Marshal(s.State())
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 2000 {
		t.Errorf("%d bytes for two classes", len(text))
	}
	var state State
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	back := New(profile(0), 0.95)
	if err := back.Restore(state, s.at); err != nil {
		t.Fatal(err)
	}
	for _, share := range []int{250, 500, 1000, 2000} {
		if got, want := back.Table(32, cores(share)), s.Table(32, cores(share)); Differ(want, got) {
			t.Errorf("at %dm: %v, want %v", share, got, want)
		}
	}
	// A day later only the prediction counts again.
	late := New(profile(0), 0.95)
	if err := late.Restore(state, s.at.Add(24*time.Hour)); err != nil || !slices.Equal(late.Table(32, cores(1000)), profile(0).Table(32, cores(1000))) {
		t.Errorf("a day later: %v, %v", late.Table(32, cores(1000)), err)
	}
}

func TestForeignStateIsRefused(t *testing.T) {
	good := New(profile(0), 0.95).State()
	with := func(k Class) State { return State{Profile: good.Profile, Classes: []Class{k}} }
	for want, s := range map[string]State{
		"for another profile": New(profile(0.2), 0.95).State(),
		"does not cover":      with(Class{Millicores: 1000, Largest: 64}),
		"up to 3":             with(Class{Millicores: 1000, Largest: 3}),
		"at -1m":              with(Class{Millicores: -1, Largest: 4}),
		"a factor of -1":      with(Class{Millicores: 1000, Largest: 4, Factor: -1}),
		"a factor of NaN":     with(Class{Millicores: 1000, Largest: 4, Factor: math.NaN()}),
		"2 buckets from 555":  with(Class{Millicores: 1000, Largest: 4, First: 555, Weights: []float64{1, 1}}),
		"buckets from -1":     with(Class{Millicores: 1000, Largest: 4, First: -1}),
		"a weight of -1":      with(Class{Millicores: 1000, Largest: 4, Weights: []float64{-1}}),
	} {
		c := New(profile(0), 0.95)
		if err := c.Restore(s, start); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if !slices.Equal(c.Table(32, cores(1000)), profile(0).Table(32, cores(1000))) {
			t.Errorf("%s: it had an effect", want)
		}
	}
}

// For any observations factors stay within their limits, and a larger batch never takes
// less.
func FuzzCorrection(f *testing.F) {
	for seed := range uint64(6) {
		f.Add(seed, byte(95))
	}
	f.Fuzz(func(t *testing.T, seed uint64, percent byte) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := profile(r.Float64())
		p.BySize = texts().BySize
		c := New(p, float64(percent)/100)
		shares := []int{100, 250, 500, 1000, 1500, 2000, 3000}
		now := start
		for range 40 {
			now = now.Add(time.Duration(r.ExpFloat64() * math.Pow(10, 12*r.Float64()-1)))
			if r.IntN(20) == 0 {
				now = now.Add(-time.Hour)
			}
			seen := make([]Observation, r.IntN(200))
			for i := range seen {
				seen[i] = Observation{
					Share: cores(shares[r.IntN(len(shares))]), Batch: r.IntN(40), Elements: r.Int64N(2) * int64(math.Exp(25*r.Float64())),
					Exec: time.Duration(math.Exp(30*r.Float64()) - 5), Beside: time.Duration(r.IntN(2)) * time.Duration(math.Exp(25*r.Float64())),
				}
			}
			c.Observe(now, seen)
			c.Update(now)
			for _, share := range shares {
				check(t, c, share)
			}
		}
		again := New(p, c.quantile)
		if err := again.Restore(c.State(), now); err != nil {
			t.Fatal(err)
		}
	})
}

func check(t *testing.T, c *Correction, share int) {
	t.Helper()
	last := time.Duration(0)
	table := c.Table(40, cores(share))
	if len(table) != 32 {
		t.Fatalf("%d times at %dm", len(table), share)
	}
	lowest := lowestFactor
	if share%1000 != 0 {
		lowest = 1
	}
	for i, got := range table {
		if got < last || float64(got) < lowest*float64(c.share(cores(share)).predicted[i])-1 {
			t.Fatalf("b = %d at %dm: %v after %v, predicted %v", i+1, share, got, last, c.share(cores(share)).predicted[i])
		}
		last = got
	}
	if most := time.Duration(1.001 * 32 * float64(c.share(cores(share)).predicted[31])); last > most {
		t.Fatalf("at %dm: %v, at most %v", share, last, most)
	}
}

// BenchmarkUpdate measures Update for a function with evidence on five shares of all batch sizes.
func BenchmarkUpdate(b *testing.B) {
	c := New(profile(0), 0.95)
	now := start
	for range 50 {
		now = now.Add(time.Second)
		for _, share := range []int{250, 500, 1000, 1500, 2000} {
			for batch := 1; batch <= 32; batch *= 2 {
				c.Observe(now, []Observation{{Share: cores(share), Batch: batch, Exec: c.share(cores(share)).predicted[batch-1]}})
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Update(now)
	}
}

// BenchmarkObserve measures Observe for the executions of a busy function between two plans.
func BenchmarkObserve(b *testing.B) {
	c := New(profile(0), 0.95)
	now := start
	seen := make([]Observation, 100)
	for i := range seen {
		seen[i] = Observation{Share: cores(1000), Batch: 1 + i%32, Exec: time.Millisecond}
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(100 * time.Millisecond)
		c.Observe(now, seen)
	}
}
