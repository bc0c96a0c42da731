package profiler

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const us = time.Microsecond

// point is a measurement without spread. Each thread uses one core.
func point(batch, threads int, t float64) Measurement {
	return Measurement{Batch: batch, Threads: threads, Median: t, P95: t, CPU: t * float64(threads), Runs: 20}
}

func profile(ms ...Measurement) *Profile {
	return &Profile{Model: strings.Repeat("ab", 32), Engine: "onnxruntime 1.32.0", Machine: "AMD EPYC × 2", Memory: 40 << 20, Measurements: ms, MeasuredAt: time.Unix(1e9, 0).UTC()}
}

func TestExecTime(t *testing.T) {
	p := profile(point(1, 1, 1000), point(4, 1, 2000), point(8, 1, 1900), point(1, 2, 600), point(4, 2, 1200))
	for _, c := range []struct {
		batch, millicores int
		want              time.Duration
	}{
		{1, 1000, 1100 * us},    // + 10 %, INFless §3.3
		{2, 1000, 1467 * us},    // on the line from 1 to 4
		{4, 1000, 2200 * us},    //
		{8, 1000, 2200 * us},    // never less than a smaller batch
		{16, 1000, 0},           // not measured
		{1, 2000, 660 * us},     // two threads
		{8, 2000, 0},            // not measured on two
		{1, 8000, 660 * us},     // as far as was measured
		{1, 0, 0}, {0, 1000, 0}, //
		{4, 500, 2200*us + 5*time.Millisecond},   // ⌈2.2/5⌉ = 1 period
		{4, 250, 2200*us + 7500*us},              // ⌈2.2/2.5⌉ = 1
		{4, 100, 2200*us + 3*9*time.Millisecond}, // ⌈2.2/1⌉ = 3
		{4, 1500, 1320*us + 1*2500*us},           // two threads, 2.64 of 15 ms
	} {
		got, ok := p.ExecTime(c.batch, Share{CPU: c.millicores})
		if ok != (c.want > 0) || (got-c.want).Abs() > us {
			t.Errorf("b = %d at %dm: %v, %v; want %v", c.batch, c.millicores, got, ok, c.want)
		}
	}
	if got := p.Table(10, Share{CPU: 1000}); len(got) != 8 || got[7] != 2200*us {
		t.Errorf("table %v, want 8 entries to 2.2ms", got)
	}
	if got := p.Table(10, Share{CPU: 0}); got != nil {
		t.Errorf("table without a share: %v", got)
	}
}

// The arithmetic of ExecTime's comment: w = 4 ms.
func TestThrottledExample(t *testing.T) {
	for millicores, want := range map[int]time.Duration{250: 19 * time.Millisecond, 500: 9 * time.Millisecond, 1000: 4 * time.Millisecond} {
		if got := throttled(4000, 4000, millicores, 1); got != want {
			t.Errorf("4 ms at %dm: %v, want %v", millicores, got, want)
		}
	}
}

// The bound holds for a thread that is throttled in steps of 250 µs, for any part of
// the period's quota that was used before the batch came.
func TestThrottledBoundsASimulatedQuota(t *testing.T) {
	const step = 250.0
	period := float64(QuotaPeriod.Microseconds())
	for _, millicores := range []int{100, 250, 500, 750, 900} {
		quota := period * float64(millicores) / 1000
		for work := step; work < 30_000; work += 7 * step {
			worst := 0.0
			for phase := 0.0; phase < period; phase += step {
				// Earlier work used as much of this period as it could.
				left, done, at := quota-min(quota, phase), 0.0, phase
				for done < work {
					if math.Mod(at, period) == 0 && at > 0 {
						left = quota
					}
					if left >= step {
						left, done = left-step, done+step
					}
					at += step
				}
				worst = max(worst, at-phase)
			}
			if bound := microseconds(throttled(work, work, millicores, 1)); worst > bound+step {
				t.Fatalf("%v µs at %dm took %v µs, the bound is %v", work, millicores, worst, bound)
			}
		}
	}
}

func TestConservativeIgnoresANoisyNeighbour(t *testing.T) {
	m := Measurement{Batch: 1, Threads: 1, Median: 1000, P95: 9000, CPU: 900, Runs: 20}
	if wall, work := m.conservative(); math.Abs(wall-2200) > 1e-6 || wall != work {
		t.Errorf("wall %v, work %v; want 2200 of both", wall, work)
	}
}

// Two instances that run a model together have twice the share, the memory and the threads.
func TestSharesOfASet(t *testing.T) {
	p := profile(point(1, 2, 1000), point(2, 2, 1800))
	p.Parts, p.Concurrency = 2, 3
	if got := p.Shares(0); !slices.Equal(got, []int{250, 500, 1000, 1500, 2000}) {
		t.Errorf("shares %v", got)
	}
	if got := p.Shares(600); !slices.Equal(got, []int{250, 500, 1000}) {
		t.Errorf("with limits of 600m each: %v", got)
	}
	for _, share := range p.Shares(0) {
		if _, ok := p.ExecTime(2, Share{CPU: share}); !ok {
			t.Errorf("no time at %dm", share)
		}
	}
	got := p.Candidates([]int{2000}, 1, 0)
	if want := (Candidate{Batch: 1, Share: Share{CPU: 2000}, Memory: 40 << 20, Parts: 2, Concurrency: 3, Exec: 1100 * us}); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Three members that compute one after the other share a core, or have one each and run as many
// batches.
func TestMembersThatWaitShareTheCPU(t *testing.T) {
	p := profile(point(1, 1, 1000))
	p.Parts, p.Active, p.Concurrency = 3, 1, 3
	if got := p.Shares(0); !slices.Equal(got, []int{125, 250, 500, 750, 1000}) {
		t.Errorf("shares %v", got)
	}
	got := p.Candidates([]int{1000}, 1, 0)
	want := Candidate{Batch: 1, Share: Share{CPU: 1000}, Memory: 40 << 20, Parts: 3, Active: 1, Exec: 1100 * us}
	apart := want
	apart.Apart, apart.CPU, apart.Concurrency = true, 3000, 3
	if !slices.Equal(got, []Candidate{want, apart}) {
		t.Errorf("%+v", got)
	}
}

func TestCandidates(t *testing.T) {
	p := profile(point(1, 1, 1000), point(2, 1, 1100), point(4, 1, 1200), point(8, 1, 1300))
	got := p.Candidates([]int{500, 1000}, 6, 0)
	want := []Candidate{
		{Batch: 1, Share: Share{CPU: 500}, Memory: 40 << 20, Exec: 6100 * us}, {Batch: 2, Share: Share{CPU: 500}, Memory: 40 << 20, Exec: 6210 * us}, {Batch: 4, Share: Share{CPU: 500}, Memory: 40 << 20, Exec: 6320 * us}, {Batch: 6, Share: Share{CPU: 500}, Memory: 40 << 20, Exec: 6375 * us},
		{Batch: 1, Share: Share{CPU: 1000}, Memory: 40 << 20, Exec: 1100 * us}, {Batch: 2, Share: Share{CPU: 1000}, Memory: 40 << 20, Exec: 1210 * us}, {Batch: 4, Share: Share{CPU: 1000}, Memory: 40 << 20, Exec: 1320 * us}, {Batch: 6, Share: Share{CPU: 1000}, Memory: 40 << 20, Exec: 1375 * us},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i, c := range got {
		if (c.Exec - want[i].Exec).Abs() > us {
			t.Errorf("candidate %d takes %v, want %v", i, c.Exec, want[i].Exec)
		}
		if c.Exec = want[i].Exec; c != want[i] {
			t.Errorf("candidate %d is %+v, want %+v", i, c, want[i])
		}
	}
	if got := p.Candidates([]int{1000}, 100, 7); len(got) != 4 || got[3].Batch != 8 || got[3].Memory != 7 {
		t.Errorf("max batch above the profile: %v", got)
	}
	if got := p.Candidates([]int{1000}, 0, 0); got != nil {
		t.Errorf("max batch 0: %v", got)
	}
}

func TestUsableAndValidate(t *testing.T) {
	good := profile(point(1, 1, 1000))
	if !good.Usable("onnxruntime 1.32.0", "AMD EPYC × 2") {
		t.Error("a good profile is not usable")
	}
	if good.Usable("onnxruntime 1.30.0", "AMD EPYC × 2") || good.Usable("onnxruntime 1.32.0", "AMD EPYC × 4") {
		t.Error("a profile of another engine or machine is usable")
	}
	if err := profile(point(1, 1, 1000), point(32, 1, 600e6)).Validate(); err != nil {
		t.Errorf("a batch of ten minutes: %v", err)
	}
	for want, p := range map[string]*Profile{
		"no measurements":  profile(),
		"batch 0":          profile(point(0, 1, 1000)),
		"on 0 threads":     profile(point(1, 0, 1000)),
		"appears twice":    profile(point(1, 1, 1000), point(1, 1, 1000)),
		"took NaN µs":      profile(point(1, 1, math.NaN())),
		"took -1 µs":       profile(point(1, 1, -1)),
		"was not measured": profile(point(1, 1, 0)),
		"margin of -1":     profile(Measurement{Batch: 1, Threads: 1, Median: 1, P95: 1, Runs: 1, Margin: -1}),
		"margin of NaN":    profile(Measurement{Batch: 1, Threads: 1, Median: 1, P95: 1, Predicted: true, Margin: math.NaN()}),
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
		if p.Usable(p.Engine, p.Machine) {
			t.Errorf("%s: usable", want)
		}
	}
}

func TestJSON(t *testing.T) {
	p := profile(point(1, 1, 1000), point(4, 2, 2000))
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Profile
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*p, back) {
		t.Errorf("got %+v, want %+v", back, *p)
	}
}

// For any measurements a larger batch never takes less time, and a larger part of one
// core never more.
func FuzzExecTime(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := profile()
		for threads := 1; threads <= 3; threads++ {
			for b := 1; b <= 64; b *= 2 {
				if r.IntN(4) == 0 {
					continue
				}
				m := Measurement{Batch: b, Threads: threads, Median: r.ExpFloat64() * 5000, Runs: 1}
				m.P95, m.CPU = m.Median*(1+r.ExpFloat64()), m.Median*float64(threads)*r.Float64()
				p.Measurements = append(p.Measurements, m)
			}
		}
		r.Shuffle(len(p.Measurements), func(i, j int) {
			p.Measurements[i], p.Measurements[j] = p.Measurements[j], p.Measurements[i]
		})
		for _, share := range []int{50, 100, 250, 500, 999, 1000, 1500, 2000, 5000} {
			last := time.Duration(0)
			for b, got := range p.Table(70, Share{CPU: share}) {
				if got < last {
					t.Fatalf("b = %d at %dm takes %v, less than %v", b+1, share, got, last)
				}
				last = got
				if more, ok := p.ExecTime(b+1, Share{CPU: 2 * share}); 2*share <= 1000 && (!ok || more > got) {
					t.Fatalf("b = %d takes %v at %dm and %v at %dm", b+1, got, share, more, 2*share)
				}
			}
		}
	})
}

// A predicted point has no runs, and its own margin.
func TestPredicted(t *testing.T) {
	p := profile(
		Measurement{Batch: 1, Threads: 1, Median: 1000, P95: 1000, CPU: 1000, Predicted: true, Margin: 0.5},
		Measurement{Batch: 2, Threads: 1, Median: 2000, P95: 2000, CPU: 2000, Predicted: true},
	)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for batch, want := range map[int]time.Duration{1: 1500 * us, 2: 2200 * us} {
		if got, ok := p.ExecTime(batch, Share{CPU: 1000}); !ok || (got-want).Abs() > us {
			t.Errorf("b = %d: %v, %v; want %v", batch, got, ok, want)
		}
	}
	if got, _ := p.ExecTime(1, Share{CPU: 500}); (got - 6500*us).Abs() > us { // 1.5 + 1 period's 5 ms
		t.Errorf("b = 1 at 500m: %v, want 6.5ms", got)
	}
}

// The arithmetic of MeanUnderQuota's comment.
func TestMeanUnderQuota(t *testing.T) {
	for _, c := range []struct {
		wall, work float64
		millicores int
		want       float64
	}{
		{4000, 4000, 250, 16000}, {4000, 4000, 500, 8000}, {4000, 4000, 1000, 4000}, {4000, 4000, 0, 4000},
		{3000, 5000, 1500, 5000 / 1.5}, {3000, 5000, 2000, 3000},
	} {
		if got := MeanUnderQuota(c.wall, c.work, c.millicores); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("wall %v, work %v at %dm: %v, want %v", c.wall, c.work, c.millicores, got, c.want)
		}
	}
}
