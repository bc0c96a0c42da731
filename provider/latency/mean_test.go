package latency

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// steady is the profile of a model whose request takes 10 ms on a core.
var steady = &profiler.Profile{Measurements: []profiler.Measurement{
	{Batch: 1, Threads: 1, Median: 10_000, P95: 10_000, CPU: 10_000}, {Batch: 2, Threads: 1, Median: 15_000, P95: 15_000, CPU: 15_000},
}}

// shown returns the means of n executions that took factor times the promised time.
func shown(share, n int, factor float64) Means {
	ms := Means{}
	promised := steady.Table(2, profiler.Share{CPU: share})
	for i := range n {
		size := 1 + i%2
		ms.Observe(profiler.Share{CPU: share}, size, time.Duration(factor*float64(promised[size-1])), promised)
	}
	return ms
}

func TestMeans(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		factor float64
		of     int
		exec   time.Duration
		want   time.Duration
	}{
		{"too few were seen", minWeight - 1, 0.9, 1000, time.Second, 0},
		{"another share, nine tenths of twice 11 ms", 1000, 0.9, 500, time.Second, 19_800 * time.Microsecond},
		{"nine tenths of what was promised", 1000, 0.9, 1000, time.Second, -1},
		{"no longer than it may take", 1000, 3, 1000, 20 * time.Millisecond, 20 * time.Millisecond},
	} {
		got := shown(1000, c.n, c.factor).Of(steady, profiler.Share{CPU: c.of}, 1, c.exec)
		if promised, _ := steady.ExecTime(1, profiler.Share{CPU: 1000}); c.want < 0 {
			c.want = time.Duration(c.factor * float64(promised))
		}
		if math.Abs(float64(got-c.want)) > 1e-3*float64(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := shown(1000, 1000, 1).Of(steady, profiler.Share{CPU: 1000}, 99, time.Second); got != 0 {
		t.Errorf("a batch that the profile does not know takes %v", got)
	}
}

// Requests of two lengths, a tenth of which are long, cost what they take on average, though half of the batches are long.
// 100 ms are promised for one, and no less for each of several.
func TestMeansOfTwoLengths(t *testing.T) {
	p := &profiler.Profile{}
	promised := make([]time.Duration, 9)
	for i := range promised {
		exec := float64(100_000 * (i + 1))
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: i + 1, Threads: 1, Median: exec, P95: exec, CPU: exec})
	}
	on := profiler.Share{CPU: 1000}
	ms := Means{}
	promised = p.Table(9, on)
	for range 500 {
		ms.Observe(on, 9, promised[8]/10, promised)
		ms.Observe(on, 1, promised[0], promised)
	}
	if got, want := ms.Of(p, on, 1, time.Hour), promised[0]*19/100; math.Abs(float64(got-want)) > 0.02*float64(want) {
		t.Errorf("one request takes %v on average, want %v", got, want)
	}
}

// Executions that the profile does not cover are ignored.
func TestWhatDoesNotCount(t *testing.T) {
	ms := Means{}
	promised := steady.Table(2, profiler.Share{CPU: 1000})
	for range minWeight {
		ms.Observe(profiler.Share{CPU: 1000}, 0, time.Second, promised)
		ms.Observe(profiler.Share{CPU: 1000}, len(promised)+1, time.Second, promised)
		ms.Observe(profiler.Share{CPU: 1000}, 1, 0, promised)
		ms.Observe(profiler.Share{CPU: 1000}, 1, -time.Second, promised)
		ms.Observe(profiler.Share{CPU: 1000}, 1, time.Second, nil)
	}
	if len(ms) != 0 || ms.Surest() != (profiler.Share{}) {
		t.Errorf("%v", ms)
	}
}

// After window executions, 1/e of the earlier mean is left.
func TestLaterExecutionsCountMore(t *testing.T) {
	ms := shown(1000, 10*window, 1)
	promised := steady.Table(2, profiler.Share{CPU: 1000})
	for range window {
		ms.Observe(profiler.Share{CPU: 1000}, 1, 2*promised[0], promised)
	}
	got := float64(ms.Of(steady, profiler.Share{CPU: 1000}, 1, time.Hour)) / float64(promised[0])
	before, after := math.Exp(-1)*float64(promised[0]+promised[1])/2, (1-math.Exp(-1))*float64(promised[0])
	if want := (before + 2*after) / (before + after); math.Abs(got-want) > 0.01 {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCandidates(t *testing.T) {
	of := func(cpu int) capacity.Candidate {
		exec, _ := steady.ExecTime(1, profiler.Share{CPU: cpu})
		return capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: cpu}}, Exec: exec}
	}
	given := []capacity.Candidate{of(1000), of(500)}
	ms := shown(1000, 1000, 0.8)
	first := ms.Candidates(steady, given)
	if &first[0] == &given[0] || given[0].Mean != 0 || first[0].Mean == 0 || first[1].Mean != 2*first[0].Mean {
		t.Fatalf("%+v of %+v", first, given)
	}
	if again := ms.Candidates(steady, first); &again[0] != &first[0] {
		t.Error("nothing has changed, and they are others")
	}
	promised := steady.Table(2, profiler.Share{CPU: 1000})
	for ms.Of(steady, profiler.Share{CPU: 1000}, 1, time.Hour) < time.Duration(1.015*float64(first[0].Mean)) {
		ms.Observe(profiler.Share{CPU: 1000}, 1, promised[0], promised)
	}
	if again := ms.Candidates(steady, first); &again[0] != &first[0] {
		t.Error("so little is no change")
	}
	for ms.Of(steady, profiler.Share{CPU: 1000}, 1, time.Hour) < time.Duration(1.025*float64(first[0].Mean)) {
		ms.Observe(profiler.Share{CPU: 1000}, 1, promised[0], promised)
	}
	if again := ms.Candidates(steady, first); &again[0] == &first[0] || again[0].Mean <= first[0].Mean {
		t.Error("the means have changed, and they are the same")
	}
	if none := ms.Candidates(steady, nil); len(none) != 0 {
		t.Errorf("%v of none", none)
	}
}

func TestTheSurestShare(t *testing.T) {
	ms := Means{}
	if ms.Surest() != (profiler.Share{}) {
		t.Error("nothing was seen")
	}
	for _, share := range []int{2000, 500, 1000} {
		ms[profiler.Share{CPU: share}] = &mean{took: 5, weight: 10}
	}
	if got := ms.Surest().CPU; got != 500 {
		t.Errorf("of several it is %d", got)
	}
	ms[profiler.Share{CPU: 1000}].weight = 11
	if got := ms.Surest().CPU; got != 1000 {
		t.Errorf("of most executions it is %d", got)
	}
}

// However long executions take, a mean is between the shortest and the longest, and no
// longer than they may take. A spread is between 0 and its maximum.
func FuzzMeans(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 0.95)
	}
	f.Fuzz(func(t *testing.T, seed uint64, quantile float64) {
		if !(quantile > 0 && quantile < 1) {
			return
		}
		r := rand.New(rand.NewPCG(seed, 5))
		promised := steady.Table(2, profiler.Share{CPU: 1000})
		ms, shortest, longest := Means{}, math.Inf(1), 0.0
		for range minWeight + r.IntN(2000) {
			factor := math.Exp(4*r.Float64() - 2)
			shortest, longest = min(shortest, factor), max(longest, factor)
			ms.Observe(profiler.Share{CPU: 1000}, 1, time.Duration(factor*float64(promised[0])), promised)
		}
		exec := time.Duration(r.Int64N(int64(time.Second)))
		got := float64(ms.Of(steady, profiler.Share{CPU: 1000}, 1, time.Hour)) / float64(promised[0])
		if ms[profiler.Share{CPU: 1000}].weight >= minWeight && (got < shortest*0.999 || got > longest*1.001) || ms.Of(steady, profiler.Share{CPU: 1000}, 1, exec) > exec {
			t.Errorf("%v of %v to %v", got, shortest, longest)
		}
		s := ms.Spread(steady, quantile, func(profiler.Share) []time.Duration { return []time.Duration{exec, 2 * exec} })
		if !(s >= 0 && s <= maxSpread) {
			t.Errorf("a spread of %v at %v", s, quantile)
		}
	})
}
