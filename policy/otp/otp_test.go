package otp

import (
	"math"
	"sort"
	"testing"
	"time"
)

const ms = time.Millisecond

// Eq. 7 of BATCH §IV with λ = 20/s, T = 100 ms, B = 4: λT = 2, so the sizes are
// e⁻², 2e⁻², 2e⁻² and the rest.
func TestSection4SizesOfBatches(t *testing.T) {
	e := math.Exp(-2)
	want := []float64{e, 2 * e, 2 * e, 1 - 5*e}
	for k, got := range (Buffer{Rate: 20, Batch: 4, Timeout: 100 * ms}).Sizes() {
		if math.Abs(got-want[k]) > 1e-12 {
			t.Errorf("batches of %d: %v, want %v", k+1, got, want[k])
		}
	}
	for _, b := range []Buffer{{Batch: 1}, {Rate: 5, Batch: 3}, {Batch: 3, Timeout: ms}, {Rate: 1e9, Batch: 32, Timeout: time.Hour}, {Rate: math.Inf(1), Batch: 2, Timeout: ms}} {
		sum := 0.0
		for _, p := range b.Sizes() {
			sum += p
		}
		if !(math.Abs(sum-1) < 1e-9) {
			t.Errorf("%+v: the sizes sum to %v", b, sum)
		}
	}
}

// Eq. 8 to 10 by hand: λ = 20/s, T = 100 ms, B = 2. λT = 2, so batches of one
// have e⁻² = 0.1353 and of two 0.8647; of the requests, 0.1353/1.8647 = 0.0726
// are alone. They are answered after 10 + 100 ms; the others between 20 and
// 20 + τ = 20 + 50 ms.
func TestSection4Latency(t *testing.T) {
	b := Buffer{Rate: 20, Batch: 2, Timeout: 100 * ms}
	exec := []time.Duration{10 * ms, 20 * ms}
	alone := math.Exp(-2) / (2 - math.Exp(-2))
	for _, c := range []struct {
		t    time.Duration
		want float64
	}{
		{10 * ms, 0}, {20 * ms, 0}, {45 * ms, (1 - alone) / 2}, {70 * ms, 1 - alone}, {109 * ms, 1 - alone}, {110 * ms, 1}, {time.Hour, 1},
	} {
		if got := b.Within(c.t, exec); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("within %v: %v, want %v", c.t, got, c.want)
		}
	}
	want := (math.Exp(-2)*0.010 + (1-math.Exp(-2))*0.020) / (2 - math.Exp(-2))
	if got := b.Busy(exec); math.Abs(got-want) > 1e-12 {
		t.Errorf("a request keeps an instance busy for %v s, want %v", got, want)
	}
}

// The model against exact percentiles of the same buffers, found by numerical
// solution. Where objectives are, at the 95th and 99th percentile, it is off by no
// more than the 9 % that §VI-C tells; in the middle it is further off, because the
// first request of a batch that does not fill waits for all of the timeout and not
// for a uniform part of it.
func TestSection6ModelAgainstExactPercentiles(t *testing.T) {
	for _, c := range []struct {
		Buffer
		first, more    float64 // ms of a batch of one, and of each further request
		mean, p95, p99 float64 // ms
	}{
		{Buffer{20, 5, 100 * ms}, 44, 34, 2.9249, 248.3, 272.5},
		{Buffer{20, 5, 100 * ms}, 12, 2, 2.9249, 118.0, 118.0},
		{Buffer{100, 8, 100 * ms}, 44, 34, 7.7599, 358.3, 373.6},
		{Buffer{100, 20, 100 * ms}, 44, 34, 10.9938, 658.5, 733.6},
		{Buffer{20, 2, 50 * ms}, 12, 2, 1.6321, 62.0, 62.0},
		{Buffer{10, 1, 50 * ms}, 12, 0, 1, 12.0, 12.0},
	} {
		var exec []time.Duration
		for k := range c.Batch {
			exec = append(exec, time.Duration((c.first+float64(k)*c.more)*float64(ms)))
		}
		if got := c.outcome().mean; math.Abs(got-c.mean) > 1e-4 {
			t.Errorf("%+v: batches of %v on average, want %v", c.Buffer, got, c.mean)
		}
		for quantile, exact := range map[float64]float64{0.95: c.p95, 0.99: c.p99} {
			at := sort.Search(1e6, func(us int) bool { return c.Within(time.Duration(us)*time.Microsecond, exec) >= quantile })
			if got := float64(at) / 1000; math.Abs(got/exact-1) > 0.09 {
				t.Errorf("%+v: the percentile %v is %v ms, exactly %v", c.Buffer, quantile, got, exact)
			}
		}
	}
}

func TestOptimise(t *testing.T) {
	small := Share{Cost: 1, Exec: []time.Duration{40 * ms, 60 * ms, 80 * ms, 100 * ms}, Batches: []int{1, 2, 4}}
	large := Share{Cost: 3, Exec: []time.Duration{10 * ms, 14 * ms, 18 * ms, 22 * ms}, Batches: []int{1, 2, 4}}
	for _, c := range []struct {
		name  string
		o     Objective
		share int
		batch int
	}{
		{"no load: nothing to wait for", Objective{0, 200 * ms, 0.99}, 1, 1},
		{"a high load fills batches", Objective{1000, 200 * ms, 0.99}, 1, 4},
		{"a tight objective allows only the fast one, and nothing to wait", Objective{1000, 12 * ms, 0.99}, 1, 1},
		{"nothing meets it: the fastest", Objective{1000, 9 * ms, 0.99}, 1, 1},
		{"no objective", Objective{1000, 0, 0.99}, 1, 4},
	} {
		got, ok := Optimise(c.o, []Share{small, large})
		if !ok || got.Share != c.share || got.Batch != c.batch {
			t.Errorf("%s: %+v, want share %d, b = %d", c.name, got, c.share, c.batch)
		}
		if got.Batch > 1 && got.Within < c.o.Quantile {
			t.Errorf("%s: %+v does not meet the objective", c.name, got)
		}
	}
	if _, ok := Optimise(Objective{1, time.Second, 0.99}, nil); ok {
		t.Error("something was chosen of nothing")
	}
	if _, ok := Optimise(Objective{1, time.Second, 0.99}, []Share{{Cost: 1, Batches: []int{1, 0, -1}}}); ok {
		t.Error("a batch without a time was chosen")
	}
}

func FuzzOptimise(f *testing.F) {
	f.Add(10.0, int64(100), 0.99, int64(20), int64(5), 8)
	f.Fuzz(func(t *testing.T, rate float64, slo int64, quantile float64, first, more int64, n int) {
		if first < 1 || more < 0 || first > 1e6 || more > 1e6 || slo < 0 || slo > 1e6 || n < 1 || n > 32 {
			return
		}
		s := Share{Cost: 2}
		for k := range n {
			s.Exec = append(s.Exec, time.Duration(first+int64(k)*more)*ms)
			s.Batches = append(s.Batches, k+1)
		}
		got, ok := Optimise(Objective{rate, time.Duration(slo) * ms, quantile}, []Share{s})
		if !ok || got.Batch < 1 || got.Batch > n || got.Timeout < 0 || math.IsNaN(got.Cost) || math.IsNaN(got.Within) {
			t.Fatalf("%+v, %v", got, ok)
		}
	})
}

func BenchmarkOptimise(b *testing.B) {
	var shares []Share
	for c := range 60 {
		s := Share{Cost: float64(1 + c)}
		for k := range 32 {
			s.Exec = append(s.Exec, time.Duration(10+k)*ms*10/time.Duration(10+c))
		}
		s.Batches = []int{1, 2, 4, 8, 16, 32}
		shares = append(shares, s)
	}
	for b.Loop() {
		Optimise(Objective{500, 100 * ms, 0.99}, shares)
	}
}
