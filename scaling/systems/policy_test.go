package systems

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
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

func system(t *testing.T, name string) System {
	t.Helper()
	s, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every system has all parts, and the names are known.
func TestByName(t *testing.T) {
	for _, name := range []string{INFless, FaaSInfer} {
		s := system(t, name)
		if s.Says == "" || s.Cold() == nil || s.Scaler() == nil {
			t.Errorf("%s lacks something", name)
		}
		if _, err := s.Batching(batching.Options{SLO: time.Second}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ByName("openwhisk"); err == nil || err.Error() != `unknown policy "openwhisk": it is one of infless, faas-infer` {
		t.Errorf("an unknown name: %v", err)
	}
	if system(t, Default).Name != FaaSInfer {
		t.Error("the default is not ours")
	}
}

// only is a model that runs on some shares only.
type only struct {
	shares
	a, b cluster.Resources
}

func (o only) Configs() []cluster.Config {
	return slices.DeleteFunc(o.shares.Configs(), func(c cluster.Config) bool { return c.Resources != o.a && c.Resources != o.b })
}

// INFless §3.4, Eq. 4, less an answer's way back: of 200 ms, 5 are for that, so a
// batch may take 97.5.
func TestSection34BatchesFillInTime(t *testing.T) {
	f := Function{SLO: 200 * ms}
	for _, c := range system(t, INFless).Candidates(f, 10, model) {
		if c.Config.Batch > 1 && c.Exec > 97500*time.Microsecond {
			t.Errorf("%v takes %v", c.Config, c.Exec)
		}
	}
	one := only{model, cluster.Resources{CPU: 1000}, cluster.Resources{CPU: 1000}} // 40 ms and 10 %, 72 ms and 10 %, …
	if got := system(t, INFless).Candidates(f, 10, one); len(got) != 2 {
		t.Errorf("%v, want batches of 1 and 2", got)
	}
	if got := system(t, INFless).Candidates(Function{}, 10, one); len(got) != 4 {
		t.Errorf("without an objective: %v, want all", got)
	}
}

// The tail: z(0.99) = 2.326, so it is exp(0.2326) = 1.262 at σ = 0.1, and never below
// 1.
func TestTail(t *testing.T) {
	for _, c := range []struct{ quantile, sigma, want float64 }{
		{0.99, 0.1, 1.2619}, {0.95, 0.1, 1.1788}, {0.5, 0.1, 1}, {0.99, 0, 1}, {0.3, 1, 1}, {0.99, -1, 1},
	} {
		if got := Tail(c.quantile, c.sigma); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("of %v at σ = %v: %v, want %v", c.quantile, c.sigma, got, c.want)
		}
	}
	ours := system(t, FaaSInfer).Candidates(Function{SLO: time.Second, Percentile: 99}, 10, model)
	if got := float64(ours[0].Exec) / float64(ours[0].Mean); math.Abs(got-1.2619) > 1e-3 {
		t.Errorf("ours plans with %v of the mean", got)
	}
}

// Plans and instances use the same times.
func TestTablesAreWhatCandidatesSay(t *testing.T) {
	f := Function{SLO: 500 * ms}
	for _, s := range systems {
		for _, c := range s.Candidates(f, 100, model) {
			table := s.Table(f, c.Config, model)
			if len(table) != c.Config.Batch || table[len(table)-1] != c.Exec {
				t.Fatalf("%s: %v has the table %v", s.Name, c, table)
			}
			if !slices.IsSorted(table) {
				t.Fatalf("%s: %v falls", s.Name, table)
			}
		}
	}
}

// A function that misses its objective by every prediction is served all the same.
func TestWhereNothingMeetsTheObjective(t *testing.T) {
	f := Function{SLO: 3 * ms} // 40/(8+8) = 2.5 ms is the fastest, 2.75 with 10 %.
	for _, s := range systems {
		served := slices.ContainsFunc(s.Candidates(f, 10, model), func(c capacity.Candidate) bool {
			return c.Exec <= f.SLO && s.Table(f, c.Config, model)[0] <= f.SLO
		})
		if !served {
			t.Errorf("%s does not serve it", s.Name)
		}
	}
}

// If some sizes have no time, or a shorter one than a smaller batch, the table takes
// the longer time.
func TestTableOfGaps(t *testing.T) {
	gaps := gappy{1: 30 * ms, 2: 20 * ms, 4: 50 * ms}
	want := []time.Duration{30 * ms, 30 * ms, 50 * ms, 50 * ms}
	if got := TableOf(Function{}, cluster.Config{Batch: 4}, gaps, 1); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

type gappy map[int]time.Duration

func (g gappy) Configs() []cluster.Config { return nil }
func (g gappy) Exec(_ cluster.Config, b int) (time.Duration, bool) {
	t, ok := g[b]
	return t, ok
}
func (g gappy) Spread() float64 { return 0 }
