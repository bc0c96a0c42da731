package latency

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

var rules = Rules{Policy: "late", Scaling: capacity.Production()}

// function returns a function with an objective and batches of up to 8.
func function(slo time.Duration) *provider.Function {
	return &provider.Function{Name: "f.openfaas-fn", Inference: annotation.Inference{IsInference: true, SLO: slo, MaxBatch: 8, Percentile: 99}}
}

// profile returns the profile of a model whose request takes ms milliseconds on a core. Each
// further request in the batch takes a fifth of that.
func profile(ms float64) *profiler.Profile {
	p := &profiler.Profile{Model: "m", Engine: "engine", Machine: "machine", Memory: 300 << 20}
	for b := 1; b <= 8; b *= 2 {
		us := 1000 * ms * (0.8 + 0.2*float64(b))
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Median: us, P95: us, CPU: us, Runs: 20})
	}
	return p
}

// slowed returns the correction of instances that take factor times the profile's times.
func slowed(p *profiler.Profile, factor float64) *correction.Correction {
	c := correction.New(p, 0.95)
	now := time.Unix(1_700_000_000, 0)
	for i := range 400 {
		var seen []correction.Observation
		for _, share := range p.Shares(0) {
			for b := 1; b <= 8; b *= 2 {
				promised, _ := p.ExecTime(b, profiler.Share{CPU: share})
				seen = append(seen, correction.Observation{Share: profiler.Share{CPU: share}, Batch: b, Exec: time.Duration(factor * float64(promised))})
			}
		}
		c.Observe(now.Add(time.Duration(i)*time.Second), seen)
	}
	c.Update(now.Add(400 * time.Second))
	return c
}

func TestPolicies(t *testing.T) {
	f := function(time.Second)
	for _, c := range []struct {
		policy, of string
		queue      capacity.Queue
		joint      bool
		largest    int
	}{
		{"late", "", capacity.LateBound, true, 8},
		{"late", batching.InFlessName, capacity.PerInstance, false, 8},
		{batching.InFlessName, "", capacity.PerInstance, false, 8},
		{batching.InFlessName, "late", capacity.LateBound, true, 8},
		{"late", batching.OneToOneName, capacity.LateBound, true, 1},
	} {
		r := Rules{Policy: c.policy, Scaling: capacity.Production()}
		f.Inference.Policy = c.of
		if got := r.Queue(f); got != c.queue || r.Limits(f).Joint != c.joint || r.largest(f) != c.largest {
			t.Errorf("%s of a provider with %s: queue %v, joint %v, batches of %d", c.of, c.policy, got, r.Limits(f).Joint, r.largest(f))
		}
		if batches := r.Promised(f, profile(4)); slices.ContainsFunc(batches, func(x capacity.Candidate) bool { return x.Config.Batch > c.largest }) {
			t.Errorf("%s of a provider with %s has larger batches than %d", c.of, c.policy, c.largest)
		}
	}
	greedy := Rules{Policy: "late", Scaling: capacity.Greedy()}
	if f.Inference.Policy = ""; greedy.Limits(f).Joint {
		t.Error("nothing is planned jointly where the provider does not")
	}
}

func TestBatchingAlike(t *testing.T) {
	a := function(time.Second)
	for name, c := range map[string]struct {
		change func(i *annotation.Inference)
		want   bool
	}{
		"the same":                           {func(*annotation.Inference) {}, true},
		"the provider's policy by name":      {func(i *annotation.Inference) { i.Policy = rules.Policy }, true},
		"other limits":                       {func(i *annotation.Inference) { i.Limits.CPU = 500 }, true},
		"another policy":                     {func(i *annotation.Inference) { i.Policy = batching.InFlessName }, false},
		"another objective":                  {func(i *annotation.Inference) { i.SLO++ }, false},
		"larger batches":                     {func(i *annotation.Inference) { i.MaxBatch++ }, false},
		"another percentile: no batch minds": {func(i *annotation.Inference) { i.Percentile = 50 }, true},
	} {
		b := function(time.Second)
		c.change(&b.Inference)
		if got := rules.BatchesAlike(a, b); got != c.want || rules.BatchesAlike(b, a) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	f := function(time.Second)
	if got := Quantile(f); got != 0.95 {
		t.Errorf("%v where nothing is stated", got)
	}
	if f.Inference.PercentileStated = true; Quantile(f) != 0.99 {
		t.Errorf("%v of the 99th percentile", Quantile(f))
	}
}

// An instance gets the memory that the deployment says, otherwise twice the measured
// memory and at least 256 MiB.
func TestMemory(t *testing.T) {
	for _, c := range []struct{ limit, measured, want int64 }{
		{0, 0, 256 << 20}, {0, 100 << 20, 256 << 20}, {0, 300 << 20, 600 << 20}, {128 << 20, 300 << 20, 128 << 20},
	} {
		f, p := function(time.Second), profile(4)
		f.Inference.Limits.Memory, p.Memory = c.limit, c.measured
		for _, x := range rules.Promised(f, p) {
			if x.Config.Memory != c.want {
				t.Errorf("%v with a limit of %d and %d measured", x.Config.Resources, c.limit, c.measured)
			}
		}
	}
}

// What instances map together is counted once and not doubled, unless the deployment says how much memory
// each has.
func TestMappedMemory(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ limit, measured, known, mapped, own int64 }{
		{0, 230, 132, 98, 264}, {0, 130, 32, 98, 158}, {0, 600, 100, 500, 200}, {0, 520, 20, 500, 128}, {0, 40, 40, 98, 158}, {0, 100, 0, 0, 256},
		{128, 230, 132, 98, 128}, {0, 600, 214, 715, 428},
		// Nobody knows what of the file is resident: all counts.
		{0, 230, 0, 98, 460}, {0, 520, 0, 500, 1040}, {0, 600, 0, 715, 1200},
	} {
		f, p := function(time.Second), profile(4)
		f.Inference.Limits.Memory, p.Memory, p.Own, p.Mapped = c.limit*mib, c.measured*mib, c.known*mib, profiler.Mapped{File: "w", Bytes: c.mapped * mib}
		corrected := slowed(p, 1.1)
		later := *p
		p.Mapped = profiler.Mapped{} // It was not prepared when the times were corrected.
		all := slices.Concat(rules.Promised(f, &later), rules.Plan(f, &later, corrected).Candidates)
		for _, x := range all {
			shared := c.limit == 0 && c.mapped > 0 && c.known > 0
			if held := x.Config.Resources; held.Own() != c.own*mib || (held.Mapped != cluster.Mapping{}) != shared || shared && held.Memory != (c.own+c.mapped)*mib {
				t.Errorf("%+v with a limit of %d MiB, %d measured, %d own and %d mapped", held, c.limit, c.measured, c.known, c.mapped)
			}
		}
		if later.Own = 200 * mib; c.limit == 0 && c.mapped > 0 {
			for _, x := range slices.Concat(rules.Promised(f, &later), rules.Plan(f, &later, corrected).Candidates) {
				if x.Config.Own() != 400*mib {
					t.Errorf("%+v if 200 MiB are an instance's own", x.Config.Resources)
				}
			}
		}
		later.Parts = 2
		for _, x := range rules.Promised(f, &later) {
			if x.Config.Mapped != (cluster.Mapping{}) {
				t.Errorf("members of a set map %+v together", x.Config.Mapped)
			}
		}
		if len(all) == 0 {
			t.Error("no candidates")
		}
	}
}

func TestPromisedKeepsToTheLimit(t *testing.T) {
	f := function(time.Second)
	f.Inference.Limits = cluster.Resources{CPU: 500}
	all := rules.Promised(f, profile(4))
	if len(all) == 0 || slices.ContainsFunc(all, func(x capacity.Candidate) bool { return x.Config.CPU > 500 }) {
		t.Errorf("%v", all)
	}
}

func TestHopeless(t *testing.T) {
	f, p := function(10*time.Millisecond), profile(100)
	why := rules.Hopeless(f, rules.Promised(f, p))
	if why == nil || why.Key != annotation.SLOLatency || why.Value != "10ms" || !strings.Contains(why.Why, "fastest") {
		t.Errorf("%v", why)
	}
	if f = function(time.Second); rules.Hopeless(f, rules.Promised(f, p)) != nil {
		t.Error("a second is enough")
	}
	if rules.Hopeless(f, nil) == nil {
		t.Error("nothing to choose from is hopeless")
	}
}

func TestPlan(t *testing.T) {
	const slo = 400 * time.Millisecond
	for _, c := range []struct {
		name         string
		ms, factor   float64
		refused      bool
		slow         bool
		many         bool
		noCandidates bool
	}{
		{"as was promised", 20, 1, false, false, true, false},
		{"somewhat slower", 20, 1.5, false, false, true, false},
		{"much slower than was promised", 20, 100, false, true, true, false},
		{"even the promise is too slow", 2000, 1, true, true, true, false},
	} {
		f, p := function(slo), profile(c.ms)
		got := rules.Plan(f, p, slowed(p, c.factor))
		if (got.Refuse != nil) != c.refused || (got.Slow != "") != c.slow || (got.Scale != 0) != c.slow || len(got.Candidates) > 1 != c.many {
			t.Errorf("%s: %d candidates, refuse %v, slow %q, times %v", c.name, len(got.Candidates), got.Refuse, got.Slow, got.Scale)
		}
	}
}

// No instance is planned that fits on no node, even if only such a one would meet the objective: none would ever start.
func TestPlansFitTheLargestNode(t *testing.T) {
	f, p := function(400*time.Millisecond), profile(20)
	for _, factor := range []float64{1, 100} {
		for most, want := range map[int]int{0: 1000, 750: 750, 1: 1000} {
			here := rules
			here.MostCPU = most
			widest := 0
			for _, x := range here.Plan(f, p, slowed(p, factor)).Candidates {
				widest = max(widest, x.Config.CPU)
			}
			if widest != want {
				t.Errorf("%g times as slow, with nodes of %dm: the largest config has %dm, want %dm", factor, most, widest, want)
			}
		}
	}
}

// If the objective cannot be met by the corrected times, they are scaled until the fastest
// config just meets it, and Slow says so. If it can, the plan holds the corrected times.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		fn, p := function(time.Duration(1+r.IntN(1000))*time.Millisecond), profile(0.1+500*r.Float64()*r.Float64())
		fn.Inference.Limits.CPU = 250 * r.IntN(5)
		fn.Inference.Policy = []string{"", batching.InFlessName, batching.OneToOneName}[r.IntN(3)]
		times := correction.New(p, Quantile(fn))
		if r.IntN(2) == 0 {
			times = slowed(p, 0.5+20*r.Float64()*r.Float64())
		}
		got := rules.Plan(fn, p, times)
		if why := rules.Hopeless(fn, got.Candidates); why != nil && len(got.Candidates) > 0 && got.Slow == "" {
			t.Errorf("%v, and it is not said", why)
		}
		if got.Slow == "" {
			if got.Refuse != nil || got.Scale != 0 {
				t.Errorf("nothing is slow, and %v, %v", got.Refuse, got.Scale)
			}
			return
		}
		if rules.Hopeless(fn, got.Candidates) != nil || got.Scale <= 0 || got.Scale > 1 {
			t.Errorf("scaled by %v, the objective is not met: %v", got.Scale, rules.Hopeless(fn, got.Candidates))
		}
		fastest := time.Duration(0)
		for _, x := range got.Candidates {
			table := got.Scaled(times.Table(x.Config.Batch, profiler.Share{CPU: x.Config.CPU}))
			if table[x.Config.Batch-1] != x.Exec {
				t.Errorf("%v: planned are %v, in tables %v", x.Config, x.Exec, table[x.Config.Batch-1])
			}
			if fastest == 0 || x.Exec < fastest {
				fastest = x.Exec
			}
		}
		if slo := fn.Inference.SLO; fastest > slo || fastest < slo*8/10 {
			t.Errorf("the fastest config takes %v of %v", fastest, slo)
		}
	})
}

// A too slow instance keeps serving with batches of one that start at once.
func TestMakeshift(t *testing.T) {
	f := function(100 * time.Millisecond)
	got := rules.Fallback(f, []time.Duration{400 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond})
	if len(got) != 3 || got[0] > 91*time.Millisecond || got[0] < 90*time.Millisecond || rules.Limits(f).Usable(got, f.Inference.SLO) != 1 {
		t.Errorf("%v", got)
	}
	if rules.Fallback(f, nil) != nil {
		t.Error("nothing is known, and there are times")
	}
}

// requests.cpu is the smallest share, limits.cpu the largest. If no share of the profile lies
// between them, requests.cpu is the only one. A cluster's least share holds unless the limit is lower.
func TestSharesOfRequestsAndLimits(t *testing.T) {
	for _, c := range []struct {
		requests, limits, least int
		want                    []int
	}{
		{0, 0, 0, []int{125, 250, 500, 750, 1000}}, {500, 0, 0, []int{500, 750, 1000}}, {500, 750, 0, []int{500, 750}},
		{600, 700, 0, []int{600}}, {1500, 0, 0, []int{1500}}, {0, 100, 0, []int{100}}, {0, 400, 250, []int{250}},
		{0, 200, 250, []int{125}}, {0, 100, 250, []int{100}}, {100, 0, 250, []int{250, 500, 750, 1000}},
	} {
		f := function(time.Second)
		f.Inference.Requests.CPU, f.Inference.Limits.CPU = c.requests, c.limits
		if got := (Rules{LeastCPU: c.least}).shares(f, profile(10)); !slices.Equal(got, c.want) {
			t.Errorf("requests %d, limits %d, least %d: %v, want %v", c.requests, c.limits, c.least, got, c.want)
		}
	}
}

// If the minimum and maximum number of instances are equal, each share keeps only the largest
// batch that meets the objective.
func TestSettledFunctionHasLargestBatches(t *testing.T) {
	f := function(120 * time.Millisecond) // On the smallest share one request takes 90 ms.
	f.Inference.MinReplicas, f.Inference.MaxReplicas = 2, 2
	seen := map[int]int{}
	for _, c := range rules.Promised(f, profile(10)) {
		if seen[c.Config.CPU] != 0 {
			t.Errorf("%v, and batches of %d", c.Config, seen[c.Config.CPU])
		}
		if seen[c.Config.CPU] = c.Config.Batch; !rules.Scaling.Meets(c, rules.Planned(f)) && c.Config.Batch > 1 {
			t.Errorf("%v does not meet the objective", c.Config)
		}
	}
	if seen[1000] < 4 {
		t.Errorf("%v", seen)
	}
	f.Inference.MaxReplicas = 3
	if all := rules.Promised(f, profile(10)); len(all) <= len(seen) {
		t.Errorf("where load chooses: %v", all)
	}
}

// An instance whose times leave a request no moment would refuse all requests: with an
// objective of 50 ms and 2.5 ms for the way, 47 ms do. It is useless, and keeps serving with
// fallback times that are not.
func TestNoMomentLeft(t *testing.T) {
	f := function(50 * time.Millisecond)
	for exec, want := range map[time.Duration]bool{47 * time.Millisecond: false, 45 * time.Millisecond: true, 20 * time.Millisecond: true} {
		table := []time.Duration{exec, 2 * exec}
		if got := rules.Usable(f, table); got > 0 != want {
			t.Errorf("one request takes %v: batches of %d can be used", exec, got)
		}
		if shift := rules.Fallback(f, table); rules.Usable(f, shift) == 0 {
			t.Errorf("one request takes %v: the fallback %v does not fit", exec, shift)
		}
	}
}

// A share on which an instance would refuse all requests is not planned: of 100 ms an instance has
// 90.25 ms, and the engine would start one that takes 92 ms.
func TestUselessSharesAreNotPlanned(t *testing.T) {
	f := function(100 * time.Millisecond)
	of := func(cpu, batch int, exec time.Duration) capacity.Candidate {
		return capacity.Candidate{Config: cluster.Config{Batch: batch, Resources: cluster.Resources{CPU: cpu}}, Exec: exec}
	}
	late, fast, fixed := of(1750, 1, 92*time.Millisecond), of(2000, 1, 64*time.Millisecond), of(4000, 4, 93*time.Millisecond)
	if err := rules.Hopeless(f, []capacity.Candidate{late}); err == nil || !strings.Contains(err.Why, "takes 92ms") {
		t.Errorf("92 ms alone: %v", err)
	}
	got := rules.usable(f, []capacity.Candidate{late, of(1750, 2, 140*time.Millisecond), fast, of(2000, 2, 93*time.Millisecond), fixed})
	if want := []capacity.Candidate{fast, of(2000, 2, 93*time.Millisecond), fixed}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
