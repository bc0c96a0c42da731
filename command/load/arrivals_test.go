package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestUniformTimes(t *testing.T) {
	times, err := Uniform.Times(3, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{0, 333333333, 666666666}
	if !slices.Equal(times, want) {
		t.Errorf("got %v, want %v", times, want)
	}
	times, err = Uniform.Times(0.1, time.Second, nil)
	if err != nil || len(times) != 1 {
		t.Errorf("a rate below one per run sends %v (%v), want one request", times, err)
	}
}

// Independent users: exponential gaps of mean 1/rate and a coefficient of
// variation of 1 (BATCH, "Arrival process").
func TestPoissonTimes(t *testing.T) {
	const rate = 2000.0
	times, err := Poisson.Times(rate, 100*time.Second, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(times) || times[len(times)-1] >= 100*time.Second {
		t.Fatal("times are not ascending and within the duration")
	}
	var gaps []float64
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, (times[i] - times[i-1]).Seconds())
	}
	mean, deviation := moments(gaps)
	if math.Abs(mean*rate-1) > 0.01 {
		t.Errorf("mean gap %v s, want %v", mean, 1/rate)
	}
	if cv := deviation / mean; math.Abs(cv-1) > 0.01 {
		t.Errorf("coefficient of variation %v, want 1", cv)
	}
	// The count of a second is Poisson too: its variance is its mean.
	counts := make([]float64, 100)
	for _, at := range times {
		counts[at/time.Second]++
	}
	mean, deviation = moments(counts)
	if dispersion := deviation * deviation / mean; dispersion < 0.6 || dispersion > 1.5 {
		t.Errorf("index of dispersion %v, want about 1", dispersion)
	}
}

func moments(xs []float64) (mean, deviation float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		deviation += (x - mean) * (x - mean) / float64(len(xs))
	}
	return mean, math.Sqrt(deviation)
}

func TestTimesRefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		rate float64
		d    time.Duration
	}{{0, time.Second}, {-1, time.Second}, {math.NaN(), time.Second}, {math.Inf(1), time.Second}, {10, 0}, {1e9, time.Hour}} {
		if _, err := Uniform.Times(c.rate, c.d, nil); err == nil {
			t.Errorf("rate %v for %v: no error", c.rate, c.d)
		}
	}
	if _, err := Arrivals("bursty").Times(1, time.Second, nil); err == nil {
		t.Error("unknown arrivals: no error")
	}
}

// A quarter of the rate in the first half, all of it in the second.
func TestShape(t *testing.T) {
	half := 50 * time.Second
	all, err := schedule([]Target{{Rate: 100, Arrivals: Poisson, Shape: func(at time.Duration) float64 {
		if at < half {
			return 0.25
		}
		return 1
	}}}, 2*half, 1)
	if err != nil {
		t.Fatal(err)
	}
	first := 0
	for i, a := range all {
		if a.index != i {
			t.Fatalf("request %d has the index %d", i, a.index)
		}
		if a.at < half {
			first++
		}
	}
	if second := len(all) - first; first < 1100 || first > 1400 || second < 4800 || second > 5200 {
		t.Errorf("%d and %d requests, want about 1250 and 5000", first, second)
	}
}

func TestScheduleMergesAndRepeats(t *testing.T) {
	targets := []Target{
		{Name: "a", Rate: 100, Arrivals: Poisson},
		{Name: "b", Rate: 50},
	}
	first, err := schedule(targets, time.Second, 7)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := schedule(targets, time.Second, 7)
	if !slices.Equal(first, again) {
		t.Error("the same seed gave another schedule")
	}
	other, _ := schedule(targets, time.Second, 8)
	if slices.Equal(first, other) {
		t.Error("another seed gave the same schedule")
	}
	if !slices.IsSortedFunc(first, func(x, y arrival) int { return int(x.at - y.at) }) {
		t.Error("the schedule is not in the order of time")
	}
	next := make([]int, len(targets))
	for _, a := range first {
		if a.index != next[a.target] {
			t.Fatalf("target %d: request %d comes where %d is due", a.target, a.index, next[a.target])
		}
		next[a.target]++
	}
	if next[1] != 50 {
		t.Errorf("%d uniform requests, want 50", next[1])
	}
	// A target that is added leaves the others' times alone.
	alone, _ := schedule(targets[:1], time.Second, 7)
	var kept []arrival
	for _, a := range first {
		if a.target == 0 {
			kept = append(kept, a)
		}
	}
	if !slices.Equal(alone, kept) {
		t.Error("adding a target changed another's arrivals")
	}
}
