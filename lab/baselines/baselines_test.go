package baselines

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
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

func system(t *testing.T, name string) systems.System {
	t.Helper()
	s, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// only is a model that runs on some shares only.
type only struct {
	shares
	a, b cluster.Resources
}

func (o only) Configs() []cluster.Config {
	return slices.DeleteFunc(o.shares.Configs(), func(c cluster.Config) bool { return c.Resources != o.a && c.Resources != o.b })
}

func TestEverySystemIsWhole(t *testing.T) {
	want := []string{
		"openfaas+", "openfaas+4t", "batch", "batch-published", "infless", "infless-bb", "infless-rs", "infless-op1.5", "infless-op2",
		"infless-release", "infless-release-bb", "infless-release-rs", "infless-release-op1.5", "infless-release-op2", "faas-infer",
	}
	if !slices.Equal(Names(), want) {
		t.Errorf("names: %v, want %v", Names(), want)
	}
	for _, name := range Names() {
		s := system(t, name)
		if s.Says == "" || s.Cold() == nil || s.Scaler() == nil {
			t.Errorf("%s lacks something", name)
		}
		if _, err := s.Batching(batching.Options{SLO: time.Second}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f := systems.Function{Name: "f", SLO: 100 * ms}
		all := s.Candidates(f, 50, model)
		if len(all) == 0 {
			t.Errorf("%s has nothing to choose from", name)
		}
		nodes := []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 16000, GPU: 100}, Free: cluster.Resources{CPU: 16000, GPU: 100}}}
		plan := s.Scaler().Scale(time.Unix(1000, 0), []scaling.Function{{Name: "f", SLO: f.SLO, Queue: s.Queue(), Configs: all, Rate: 50, Waiting: 1, ScaleToZero: true}}, nodes)
		if len(plan.Start) == 0 {
			t.Errorf("%s starts nothing: %+v", name, plan.Unplaced)
		}
		for _, c := range all { // Plans and instances use the same times.
			if table := s.Table(f, c.Config, model); len(table) != c.Config.Batch || table[len(table)-1] != c.Exec || !slices.IsSorted(table) {
				t.Errorf("%s: %v has the table %v", name, c, table)
			}
		}
		// 40/(8+8) = 2.5 ms is the fastest, so 3 ms may be missed by every prediction.
		if f.SLO = 3 * ms; !slices.ContainsFunc(s.Candidates(f, 10, model), func(c capacity.Candidate) bool { return c.Exec <= f.SLO }) {
			t.Errorf("%s does not serve where nothing meets the objective", name)
		}
	}
	if _, err := ByName("openwhisk"); err == nil || err.Error() != `unknown policy "openwhisk": it is one of openfaas+, openfaas+4t, batch, batch-published, infless, infless-bb, infless-rs, infless-op1.5, infless-op2, infless-release, infless-release-bb, infless-release-rs, infless-release-op1.5, infless-release-op2, infaas, infaas-ilp, clipper+, clipper+cpu, sm+, sm+cpu, faas-infer, faas-infer-greedy, faas-infer-deferred, symphony, clockwork, shepherd, nexus` {
		t.Errorf("an unknown name: %v", err)
	}
}

// INFless §5.1: 2 cores and 10 % of a GPU each, one request at a time.
func TestSection51OpenFaaSPlus(t *testing.T) {
	s := system(t, OpenFaaS)
	want := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 2000, GPU: 10}}
	for _, slo := range []time.Duration{0, 100 * ms, 5 * ms} { // 40/(2+4) = 6.7 ms
		got := s.Candidates(systems.Function{SLO: slo}, 10, model)
		if len(got) != 1 || got[0].Config != want {
			t.Fatalf("under %v: %v, want %v", slo, got, want)
		}
		if slo > 0 && got[0].Exec > slo {
			t.Errorf("under %v its time is %v: it would not be started", slo, got[0].Exec)
		}
	}
	if s.Queue() != capacity.LateBound || s.Settings().KeepAlive != 300*time.Second || s.Settings().Placement != capacity.Spread {
		t.Errorf("its settings are %+v", s.Settings())
	}
	// The first is 0.6·2 + 10 = 11.2 away, the other 0.6·1 + 10 = 10.6.
	nearest := s.Candidates(systems.Function{}, 10, only{model, cluster.Resources{CPU: 4000}, cluster.Resources{CPU: 1000, GPU: 20}})
	if len(nearest) != 1 || nearest[0].Config.CPU != 1000 {
		t.Errorf("the nearest is %v", nearest)
	}
}

// INFless §3.3: predictions are 10 % longer; §5.2: OP1.5 and OP2.
func TestSection33And52Predictions(t *testing.T) {
	c := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000}}
	for name, want := range map[string]time.Duration{systems.INFless: 44 * ms, INFlessOP1: 60 * ms, INFlessOP2: 80 * ms, OpenFaaS: 40 * ms} {
		if got := system(t, name).Table(systems.Function{}, c, model); len(got) != 1 || (got[0]-want).Abs() > 1 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// INFless §5.2: BB has batches of one, RS one config for each batch size.
func TestSection52Ablations(t *testing.T) {
	f := systems.Function{SLO: 200 * ms, MaxBatch: 4}
	for _, c := range system(t, INFlessBB).Candidates(f, 10, model) {
		if c.Config.Batch != 1 {
			t.Errorf("BB: %v", c)
		}
	}
	got := system(t, INFlessRS).Candidates(f, 10, model)
	if len(got) != 3 {
		t.Fatalf("RS: %v, want one for each of 1, 2, 4", got)
	}
	for _, c := range got {
		if c.Config.Resources != (cluster.Resources{CPU: 8000, GPU: 20}) {
			t.Errorf("RS: %v is not the fastest", c)
		}
	}
}
