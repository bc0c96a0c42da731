package control

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// always returns the same factor for every config.
func always(times float64) func(cluster.Config) float64 {
	return func(cluster.Config) float64 { return times }
}

func within(slo time.Duration) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.SLO = slo }
}

// known holds a function's candidates, and the times and largest batches of its
// instances, as the controller knows them.
type known struct {
	candidates []capacity.Candidate
	tables     map[cluster.InstanceID][]time.Duration
	batches    map[cluster.InstanceID]int
}

func (r *rig) known(name string) known {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn := r.functions[full(name)]
	k := known{slices.Clone(fn.artefacts[0].candidates), map[cluster.InstanceID][]time.Duration{}, map[cluster.InstanceID]int{}}
	for _, in := range fn.Sorted() {
		k.tables[in.ID], k.batches[in.ID] = slices.Clone(in.table), in.batch
	}
	return k
}

// exec returns the time of a candidate, 0 if there is no such candidate.
func (k known) exec(batch, millicores int) time.Duration {
	for _, x := range k.candidates {
		if x.Config.Batch == batch && x.Config.CPU == millicores {
			return x.Exec
		}
	}
	return 0
}

// ratio returns a config's ratio in the metrics, 0 if there is none.
func (r *rig) ratio(t *testing.T, name string, c cluster.Config) (ratio float64) {
	t.Helper()
	r.eachRatio(t, name, func(config string, value float64) {
		if config == c.String() {
			ratio = value
		}
	})
	return ratio
}

// ratios counts a function's ratios in the metrics.
func (r *rig) ratios(t *testing.T, name string) (n int) {
	t.Helper()
	r.eachRatio(t, name, func(string, float64) { n++ })
	return n
}

func (r *rig) eachRatio(t *testing.T, name string, each func(config string, value float64)) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "faas_infer_exec_over_predicted_ratio" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["function"] == full(name) {
				each(labels["config"], m.GetGauge().GetValue())
			}
		}
	}
}

// recovers fails the test unless the load is on at most that many instances, whose times are much
// shorter than slow says. Which shares those are depends on the requests that happened to be late
// at first. A share that no instance has any more, a batch size that no longer comes, and a
// percentile keep the slow times for some minutes.
func (r *rig) recovers(slow known, most int) {
	r.t.Helper()
	now, living := r.known("f"), r.backend.living()
	if len(living) == 0 || len(living) > most {
		r.t.Errorf("%d instances are left, at most %d are needed", len(living), most)
	}
	for _, in := range living {
		was, is := slow.tables[in.ID], now.tables[in.ID]
		faster := false
		for i := range min(len(was), len(is)) {
			faster = faster || is[i] <= was[i]*6/10
		}
		if !faster {
			r.t.Errorf("as predicted again, %v takes %v, and took %v", in.Config, is, was)
		}
	}
}

// A model is 3.5 times as slow as its profile says. The candidates, the instances' times
// and the plan follow, and no instance is restarted. The times follow the profile's own
// formula for a loaded instance. Shares stay as they are, since an instance with a
// larger one has other times.
func TestSlowerModelIsReplanned(t *testing.T) {
	tryWith(t, func(o *Options) { o.System = o.System.With(func(s *scaling.Settings) { s.Vertical = false }) }, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", within(100*time.Millisecond))
		r.load("f", 5*time.Millisecond, 20*time.Second)
		before, instances := r.known("f"), r.backend.living()
		small := instances[0].Config
		if got := before.tables[instances[0].ID][0]; small.CPU != 250 || got < 19*time.Millisecond || got > 20*time.Millisecond {
			t.Fatalf("at 250m a request takes 4 + 2·7.5 ms as predicted; %v says %v", small, got)
		}
		r.backend.take(always(3.5))
		r.load("f", 5*time.Millisecond, 10*time.Second) // It takes some seconds to be sure.
		if failed := r.load("f", 5*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests failed although the plan should have followed", failed)
		}
		after, living := r.known("f"), r.backend.living()
		for _, in := range instances {
			table, ok := after.tables[in.ID]
			if !ok {
				t.Errorf("%s was stopped", in.ID)
			} else if table[0] < 59*time.Millisecond || table[0] > 62*time.Millisecond || table[after.batches[in.ID]-1] > 100*time.Millisecond {
				t.Errorf("a request takes 14 + 6·7.5 ms; the instance's table says %v, for batches of %d", table, after.batches[in.ID])
			}
		}
		if len(living) <= len(instances) {
			t.Errorf("%d instances for 3.5 times the work, where there were %d", len(living), len(instances))
		}
		// Executions on a part of a core do not correct the times on a whole one.
		wholes := slices.ContainsFunc(living, func(in cluster.Instance) bool { return in.Config.CPU == 1000 })
		for config, want := range map[[2]int]time.Duration{{1, 250}: 59, {1, 1000}: 14, {8, 1000}: 63} {
			if config[1] == 1000 && !wholes {
				continue
			}
			if got, want := after.exec(config[0], config[1]), want*time.Millisecond; got < want || got > want*115/100 {
				t.Errorf("%v takes %v; the candidate says %v, before %v", config, want, got, before.exec(config[0], config[1]))
			}
		}
		if got := r.ratio(t, "f", small); math.Abs(got-59.0/19) > 0.1 {
			t.Errorf("the ratio's metric is %.2f", got)
		}
		r.backend.take(always(1))
		r.load("f", 5*time.Millisecond, 90*time.Second)
		r.recovers(after, len(instances))
		if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
			t.Errorf("metrics: %v, %v", problems, err)
		}
	})
}

// Instances with their own queues fill every batch, so no batch is larger than the
// corrected times allow.
func TestSlowerModelGetsSmallerBatches(t *testing.T) {
	for policy, want := range map[string]int{batching.InFlessName: 2, batching.SharedName: 4} {
		fn := &function{Function: &provider.Function{}, rules: &latency.Rules{Policy: policy}}
		in := &instance{function: fn, table: []time.Duration{10, 20, 30, 60}, batch: 2, rate: 5}
		if d := in.describe(); d.Config.Batch != want || len(d.Exec) != want || d.Rate != 5 {
			t.Errorf("described as %+v, want batches of %d", d, want)
		}
	}
	try(t, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", within(400*time.Millisecond), func(f *provider.Function) { f.Inference.Policy = batching.InFlessName })
		r.load("f", 5*time.Millisecond, 10*time.Second)
		r.backend.take(always(3))
		r.load("f", 5*time.Millisecond, 20*time.Second)
		if failed := r.load("f", 5*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		known := r.known("f")
		for id, batch := range known.batches {
			if got := known.tables[id][batch-1]; batch > 1 && got > 200*time.Millisecond {
				t.Errorf("batches of %d take %v, more than half of the objective", batch, got)
			}
		}
	})
}

// An instance on which not even one request can be in time is replaced by one with a
// larger share, without a gap.
func TestShareThatIsTooSmallIsReplaced(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", within(100*time.Millisecond))
		r.load("f", 500*time.Millisecond, 10*time.Second)
		small := r.only()
		if small.Config.CPU >= 1000 {
			t.Fatalf("for two requests per second there is %v", small.Config)
		}
		r.backend.take(func(c cluster.Config) float64 {
			if c.CPU < 1000 {
				return 30
			}
			return 1
		})
		r.load("f", 500*time.Millisecond, 30*time.Second)
		if in := r.only(); in.Config.CPU < 1000 {
			t.Errorf("120 ms for one request of 100 ms, and there still is %v", in.Config)
		}
		if failed := r.load("f", 500*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
	})
}

// If no config can meet the objective any more, requests are still executed. Otherwise
// nobody would see when the slowness has passed.
func TestHopelesslySlowModelGoesOn(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", within(50*time.Millisecond))
		r.load("f", 50*time.Millisecond, 5*time.Second)
		r.backend.take(always(28))
		r.load("f", 500*time.Millisecond, 30*time.Second)
		if d := r.describe("f"); !strings.Contains(d.Problem, "slower than predicted") || d.Ready == 0 {
			t.Errorf("described as %+v", d)
		}
		if failed := r.load("f", 500*time.Millisecond, 5*time.Second); failed > 0 {
			t.Errorf("%d requests were refused", failed)
		}
		r.backend.take(always(1))
		r.load("f", 50*time.Millisecond, 2*time.Minute)
		if d := r.describe("f"); d.Problem != "" {
			t.Errorf("after the trouble: %q", d.Problem)
		}
	})
}

// Corrections outlive the provider, even one that is killed. They are deleted with the
// function.
func TestCorrectionsOutliveTheProvider(t *testing.T) {
	for _, killed := range []bool{false, true} {
		try(t, func(r *rig) {
			r.backend.take(always(2))
			r.measured("f", "m")
			r.load("f", 10*time.Millisecond, 90*time.Second)
			if functions, writes := r.corrections.written(); functions != 1 || writes != 1 {
				t.Errorf("after a minute and a half, %d functions are written in %d writes", functions, writes)
			}
			// A provider that is killed loses the corrections since its last write.
			for writes := 1; writes == 1; _, writes = r.corrections.written() {
				r.load("f", 10*time.Millisecond, time.Second)
			}
			before := r.used(r.known("f").candidates)
			if r.mu.Lock(); len(before) == 0 || !differ(before, same(r.functions[full("f")].artefacts[0].promised, before)) {
				t.Error("nothing was learnt")
			}
			r.mu.Unlock()
			if !killed {
				r.close()
			} else {
				r.end()
				r.keeper.End()
			}
			r.open()
			r.run()
			r.measured("f", "m")
			if after := same(r.known("f").candidates, before); differ(before, after) {
				t.Errorf("killed: %v: candidates %v, were %v", killed, after, before)
			}
			r.answered("f", "m")
			r.until("the ratio of before", func() bool { return r.ratios(t, "f") > 0 })
			if err := r.Remove(t.Context(), full("f")); err != nil {
				t.Fatal(err)
			}
			if n := r.ratios(t, "f"); n != 0 {
				t.Errorf("%d ratios of a function that was removed", n)
			}
			if functions, _ := r.corrections.written(); functions != 0 {
				t.Error("the function's corrections outlive it")
			}
		})
	}
}

// A deployment that changes nothing keeps the corrections. Another model begins without
// any.
func TestDeploymentKeepsWhatWasSeen(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(2))
		r.measured("f", "m")
		r.load("f", 10*time.Millisecond, 10*time.Second)
		time.Sleep(3 * time.Second) // the last answers are learned from
		started, before := r.backend.asked(), r.known("f")
		r.deploy("f", "m", within(250*time.Millisecond))
		time.Sleep(3 * time.Second)
		if after := r.known("f"); differ(before.candidates, after.candidates) {
			t.Errorf("deployed again: candidates %v, were %v", after.candidates, before.candidates)
		}
		if r.backend.asked() != started {
			t.Error("instances were restarted")
		}
		r.deploy("f", "other")
		time.Sleep(3 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if fn := r.functions[full("f")]; differ(fn.artefacts[0].candidates, fn.artefacts[0].promised) {
			t.Errorf("of another model: candidates %v, promised %v", fn.artefacts[0].candidates, fn.artefacts[0].promised)
		}
	})
}
