package batch

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const ms = time.Millisecond

// shares is a model that needs work ms of one core for a request, and a fifth less for
// each further one of a batch. 10 % of a GPU are worth four cores, and an instance
// uses at most eight.
type shares struct {
	work, sigma float64
	batches     []int
}

func (s shares) Configs() (all []cluster.Config) {
	for _, cpu := range []int{1000, 2000, 4000, 8000} {
		for _, gpu := range []int{0, 10, 20} {
			for _, b := range s.batches {
				all = append(all, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu}})
			}
		}
	}
	return all
}

func (s shares) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if b < 1 || b > s.batches[len(s.batches)-1] {
		return 0, false
	}
	speed := float64(c.CPU)/1000 + 0.4*float64(c.GPU)
	return time.Duration(s.work * (1 + 0.8*float64(b-1)) / speed * float64(ms)), true
}

func (s shares) Spread() float64 { return s.sigma }

var model = shares{work: 40, sigma: 0.1, batches: []int{1, 2, 4, 8}}

func system(t *testing.T) systems.System {
	t.Helper()
	s, err := systems.ByName(Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Candidates searches at once.
func (u *Tuner) Candidates(now time.Time, rate float64) (list []capacity.Candidate, revision uint64) {
	if x := u.Begin(now, rate); x != nil {
		x.Run()
		return x.Take()
	}
	return u.list, u.revision
}

// The system's own tuner is this one. Plans and instances use the same times.
func TestSystem(t *testing.T) {
	f := systems.Function{SLO: 500 * ms}
	s := system(t)
	if _, ours := s.Tuner(f, model).(*Tuner); !ours {
		t.Error("another tuner")
	}
	for _, c := range s.Candidates(f, 100, model) {
		table := s.Table(f, c.Config, model)
		if len(table) != c.Config.Batch || table[len(table)-1] != c.Exec || !slices.IsSorted(table) {
			t.Fatalf("%v has the table %v", c, table)
		}
	}
}

// A function that misses its objective by every prediction is served all the same.
func TestWhereNothingMeetsTheObjective(t *testing.T) {
	f := systems.Function{SLO: 3 * ms} // 40/(8+8) = 2.5 ms is the fastest, 2.75 with 10 %.
	s := system(t)
	served := slices.ContainsFunc(s.Candidates(f, 10, model), func(c capacity.Candidate) bool {
		return c.Exec <= f.SLO && s.Table(f, c.Config, model)[0] <= f.SLO
	})
	if !served {
		t.Error("it is not served")
	}
}

// BATCH: one config for all, larger batches under more load, and answers within the
// objective.
func TestUniform(t *testing.T) {
	s, f := system(t), systems.Function{SLO: 100 * ms, Percentile: 95}
	last := 0
	for _, rate := range []float64{0, 20, 100, 1000} {
		got := s.Candidates(f, rate, model)
		if len(got) != 1 {
			t.Fatalf("at %v/s: %v", rate, got)
		}
		c := got[0]
		if c.Config.Batch < last || c.Timeout+s.Table(f, c.Config, model)[0] > f.SLO || c.Exec > f.SLO {
			t.Errorf("at %v/s: %+v", rate, c)
		}
		last = c.Config.Batch
	}
	if last != 8 {
		t.Errorf("at 1000/s batches have %d", last)
	}
}

func TestTuner(t *testing.T) {
	model := model
	model.sigma = 0
	u := NewTuner(system(t), systems.Function{SLO: 100 * ms}, model)
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		after    time.Duration
		rate     float64
		batch    int
		revision uint64
	}{
		{0, 0, 1, 1},                    // nothing is known yet
		{100 * ms, 1000, 8, 2},          // the first load counts at once
		{100 * ms, 1, 8, 2},             // but not the next
		{10 * time.Second, 1100, 8, 2},  // about the same
		{time.Second, 1000 / 1.2, 8, 2}, // still
		{time.Second, 0, 8, 2},          // none any more: nothing is exchanged for nobody
		{100 * ms, 1000, 8, 2},          // and again
		{time.Hour, math.Inf(1), 8, 2},  // other loads with the same choice
		{time.Hour, 1e9, 8, 2},          // ...
		{9 * time.Second, 1e-9, 8, 2},   // not yet
		{1 * time.Second, 1e-9, 8, 2},   // (how large batches are to be does not matter then)
		{100 * time.Second, 1000, 8, 2},
	} {
		at = at.Add(c.after)
		list, revision := u.Candidates(at, c.rate)
		if revision != c.revision || c.rate != 1e-9 && list[0].Config.Batch != c.batch {
			t.Errorf("at %v/s: %v, revision %d, want %d, %d", c.rate, list, revision, c.batch, c.revision)
		}
	}
}
