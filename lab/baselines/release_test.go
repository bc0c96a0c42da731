package baselines

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// listed has times by config, all without spread.
type listed map[cluster.Config]time.Duration

func (l listed) Configs() (all []cluster.Config) {
	for c := range l {
		all = append(all, c)
	}
	return all
}

func (l listed) Exec(c cluster.Config, b int) (time.Duration, bool) {
	c.Batch = b
	t, ok := l[c]
	return t, ok
}

func (listed) Spread() float64 { return 0 }

// The release's estimator takes a measured time as it is, tries 2, 4, … threads up to
// max(2, b), and compares with half of the objective without time for the way back.
func TestReleaseConfigs(t *testing.T) {
	on := func(b, threads, gpu int) cluster.Config {
		return cluster.Config{Batch: b, Resources: cluster.Resources{CPU: 1000 * threads, GPU: gpu}}
	}
	const half = 200 * time.Millisecond
	times := listed{
		on(1, 2, 10): 2 * half, on(1, 4, 10): half, on(1, 1, 0): half,
		on(2, 2, 10): half, on(2, 4, 10): half / 2, on(4, 4, 20): half + 1, on(8, 8, 20): half / 2, on(8, 6, 20): half,
	}
	f := systems.Function{Name: "f", SLO: 2 * half}
	for name, want := range map[string]map[cluster.Config]time.Duration{
		Release:    {on(1, 2, 10): 2 * half, on(2, 2, 10): half, on(8, 8, 20): half / 2, on(8, 6, 20): half},
		ReleaseBB:  {on(1, 2, 10): 2 * half},
		ReleaseRS:  {on(1, 2, 10): 2 * half, on(2, 2, 10): half, on(8, 8, 20): half / 2},
		ReleaseOP2: {on(1, 2, 10): 4 * half, on(8, 8, 20): half},
		// The paper adds 10 % to predictions, and any share may be taken.
		systems.INFless: {on(1, 1, 0): half * 11 / 10, on(1, 2, 10): 2 * half * 11 / 10, on(1, 4, 10): half * 11 / 10, on(2, 4, 10): half * 11 / 20, on(8, 8, 20): half * 11 / 20},
	} {
		s, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got := map[cluster.Config]time.Duration{}
		for _, c := range s.Candidates(f, 100, times) {
			got[c.Config] = c.Exec
		}
		if len(got) != len(want) {
			t.Errorf("%s considers %v, want %v", name, got, want)
		}
		for c, exec := range want {
			if (got[c] - exec).Abs() > 1 {
				t.Errorf("%s: %v takes %v, want %v", name, c, got[c], exec)
			}
		}
	}
}

// R_max and the parts of the load come from the same rounding of Eq. 1. A batch of 8 in 170 ms
// under 400 ms: ⌊1/0.17⌋·8 = 40/s as printed, ⌊8/0.17⌋ = 47/s in the release, and 160/3.4 =
// 47.06/s without rounding.
func TestOneRoundingOfEq1(t *testing.T) {
	c := cluster.Config{Batch: 8}
	for name, up := range map[string]float64{systems.INFless: 40, Release: 47, systems.FaaSInfer: 8 / 0.17} {
		s, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Range(c, 170*time.Millisecond, 400*time.Millisecond)
		max := s.Settings().Bounds(c, 170*time.Millisecond, 400*time.Millisecond, capacity.PerInstance)
		if got.Up < up-1e-9 || got.Up > up+1e-9 || got.Up != max.Up {
			t.Errorf("%s: r_up %v, want %v; R_max adds %v", name, got.Up, up, max.Up)
		}
	}
}

// Two cores are four threads. Of a model that was measured with two threads only, an instance
// has the times of these and holds four. The classic watchdog adds a fork to each request.
func TestPlain(t *testing.T) {
	two := cluster.Config{Batch: 1, Resources: twoThreads}
	four := cluster.Config{Batch: 1, Resources: fourThreads}
	times := listed{two: 60 * time.Millisecond, {Batch: 8, Resources: fourThreads}: time.Second}
	for _, c := range []struct {
		name string
		fork time.Duration
		want cluster.Config
		exec time.Duration
	}{
		{OpenFaaS, 0, two, 60 * time.Millisecond},
		{OpenFaaSCores, 0, four, 60 * time.Millisecond},
		{OpenFaaS, 100 * time.Millisecond, two, 160 * time.Millisecond},
		{OpenFaaSCores, 100 * time.Millisecond, four, 160 * time.Millisecond},
	} {
		s, err := ByName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		plain := Plain(s, times, c.fork)
		got := s.Candidates(systems.Function{Name: "f", SLO: time.Second}, 10, plain)
		if len(got) != 1 || got[0].Config != c.want || got[0].Exec != c.exec {
			t.Errorf("%s with a fork of %v: %v, want %v in %v", c.name, c.fork, got, c.want, c.exec)
		}
		if exec, ok := plain.Exec(c.want, 1); !ok || exec != c.exec {
			t.Errorf("%s with a fork of %v takes %v", c.name, c.fork, exec)
		}
	}
	if s, err := ByName(systems.INFless); err != nil || len(Plain(s, times, time.Second).Configs()) != 2 {
		t.Errorf("INFless' instances are not plain: %v", err)
	}
}
