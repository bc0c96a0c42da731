package capacity

import (
	"math"
	"testing"
	"time"
)

const ms = time.Millisecond

// The example of INFless §3.2: b = 4, t_exec = 50 ms, SLO 200 ms.
func TestSection32ExampleRange(t *testing.T) {
	if got := Bounds(4, 50*ms, 200*ms, Paper); got != (Range{Low: 28, Up: 80}) {
		t.Errorf("Paper: %v, §3.2 says [28, 80]", got)
	}
	got := Bounds(4, 50*ms, 200*ms, Exact)
	if math.Abs(got.Low-4/0.15) > 1e-9 || math.Abs(got.Up-80) > 1e-9 {
		t.Errorf("Exact: %v, want [26.67, 80]", got)
	}
}

func TestBoundsEdges(t *testing.T) {
	for _, c := range []struct {
		name      string
		b         int
		exec, slo time.Duration
		rounding  Rounding
		want      Range
	}{
		{"the paper's floor is 0 above one second", 8, 1500 * ms, 4 * time.Second, Paper, Range{0, 0}},
		{"exact above one second", 8, 1600 * ms, 3600 * ms, Exact, Range{4, 5}},
		{"no batch, no wait", 1, 50 * ms, 60 * ms, Exact, Range{0, 20}},
		{"the paper's r_low at b = 1 is lowered to r_up", 1, 50 * ms, 60 * ms, Paper, Range{20, 20}},
		{"half the SLO", 4, 100 * ms, 200 * ms, Exact, Range{40, 40}},
		{"more than half the SLO", 4, 150 * ms, 200 * ms, Exact, Range{4 / 0.15, 4 / 0.15}},
		{"more than the SLO", 4, 250 * ms, 200 * ms, Exact, Range{16, 16}},
		{"the release's floor of the whole", 8, 170 * ms, 400 * ms, Whole, Range{34, 47}},
		{"the release at a batch of one", 1, 170 * ms, 400 * ms, Whole, Range{0, 5}},
		{"no SLO", 4, 250 * ms, 0, Exact, Range{0, 16}},
		{"no time", 4, 0, 200 * ms, Exact, Range{}},
		{"no batch size", 0, 50 * ms, 200 * ms, Exact, Range{}},
	} {
		got := Bounds(c.b, c.exec, c.slo, c.rounding)
		if math.Abs(got.Low-c.want.Low) > 1e-9 || math.Abs(got.Up-c.want.Up) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// INFless Eq. 7 with α = 0.8 on [R_min, R_max] = [28, 80].
func TestThreshold(t *testing.T) {
	if got := Threshold(Range{Low: 28, Up: 80}, 0.8); math.Abs(got-69.6) > 1e-9 {
		t.Errorf("%v, want 69.6", got)
	}
}

func TestRatesOfTheThreeCases(t *testing.T) {
	ranges := []Range{{Low: 28, Up: 80}, {Low: 10, Up: 20}}
	for _, c := range []struct {
		rps  float64
		want []float64
	}{
		{120, []float64{80, 20}},  // (i)
		{100, []float64{80, 20}},  // R_max
		{69, []float64{54, 15}},   // (ii): half the band
		{38, []float64{28, 10}},   // R_min
		{19, []float64{14, 5}},    // below R_min: shares of r_low
		{0, []float64{0, 0}},      // nothing
		{-1, []float64{0, 0}},     // nothing
		{math.NaN(), []float64{}}, // checked only not to panic
		{math.Inf(1), []float64{80, 20}},
	} {
		got := Rates(c.rps, ranges)
		for i, want := range c.want {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("R = %v: %v, want %v", c.rps, got, c.want)
			}
		}
	}
	if got := Rates(5, []Range{{Low: 10, Up: 10}}); got[0] != 5 {
		t.Errorf("a range of one point at half its load: %v, want 5", got)
	}
}

// Up to R_max every request has an instance, and no instance gets more than its r_up.
func FuzzRates(f *testing.F) {
	f.Add(50.0, 28.0, 80.0, 10.0, 20.0)
	f.Add(0.0, 0.0, 0.0, 0.0, 0.0)
	f.Fuzz(func(t *testing.T, rps, l1, u1, l2, u2 float64) {
		for _, v := range []float64{rps, l1, u1, l2, u2} {
			if !(v >= 0 && v < 1e9) {
				return
			}
		}
		ranges := []Range{{min(l1, u1), max(l1, u1)}, {min(l2, u2), max(l2, u2)}}
		sum, total := 0.0, Total(ranges)
		for i, r := range Rates(rps, ranges) {
			if r < -1e-6 || r > ranges[i].Up*(1+1e-9)+1e-6 {
				t.Fatalf("instance %d of %v gets %v of %v", i, ranges, r, rps)
			}
			sum += r
		}
		if want := min(rps, total.Up); math.Abs(sum-want) > 1e-6*(1+want) {
			t.Fatalf("%v of %v sum to %v", rps, ranges, sum)
		}
	})
}

// Eq. 4 bounds batches above one by half of the SLO, Eq. 3 single requests by
// all of it.
func TestUsable(t *testing.T) {
	times := func(millis ...int) (out []time.Duration) {
		for _, x := range millis {
			out = append(out, time.Duration(x)*ms)
		}
		return out
	}
	for _, c := range []struct {
		exec []time.Duration
		slo  int
		want int
	}{
		{times(10, 20, 30, 40), 100, 4}, {times(10, 20, 30, 60), 100, 3}, {times(60, 70), 100, 1}, {times(101, 102), 100, 0}, {nil, 100, 0}, {times(500, 600), 0, 2},
	} {
		if got := Greedy().Usable(c.exec, time.Duration(c.slo)*ms); got != c.want {
			t.Errorf("%v under %d ms: %d, want %d", c.exec, c.slo, got, c.want)
		}
	}
}
