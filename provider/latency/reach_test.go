package latency_test

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
)

// sentences takes 40 ms for 128 tokens on one core and 25 ms on two, and in proportion for others.
func sentences() *profiler.Profile {
	p := &profiler.Profile{Model: "m", Engine: "engine", Machine: "machine", BySize: &profiler.Sizes{
		Unit: "tokens", Length: 128, Elements: 256, Times: []profiler.SizeTime{
			{Length: 16, Elements: 32, Factors: []float64{0.125}}, {Length: 128, Elements: 256, Factors: []float64{1}}, {Length: 512, Elements: 1024, Factors: []float64{4}},
		},
	}}
	for threads, us := range map[int]float64{1: 40e3, 2: 25e3} {
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: 1, Threads: threads, Median: us, P95: us, CPU: 40e3, Runs: 9})
	}
	return p
}

func TestReachSaysForWhichSizesTheObjectiveHolds(t *testing.T) {
	rules := latency.Rules{Policy: batching.SharedName, Scaling: scaling.DefaultSettings().Options}
	for _, c := range []struct {
		slo  time.Duration
		cpu  int
		want string
	}{
		// 0.95 · (100 − 5) ms are 90.25 ms: at 1.1 · 40 ms for 128 tokens, 262 of them on one core.
		{100 * time.Millisecond, 0, "p99 ≤ 100ms up to 262 tokens on one core, 420 on 2 cores"},
		{100 * time.Millisecond, 1000, "p99 ≤ 100ms up to 262 tokens on one core"},
		{time.Second, 0, "p99 ≤ 1s up to 512 tokens on one core, the longest that was tried"},
		{4 * time.Millisecond, 1000, "p99 ≤ 4ms for no length on one core, where 16 tokens take 5.5ms"},
	} {
		f := &provider.Function{Inference: annotation.Inference{SLO: c.slo, Percentile: 99, MaxBatch: 1}}
		f.Inference.Limits.CPU = c.cpu
		if got := rules.Reach(f, sentences()); got != c.want {
			t.Errorf("%v on %dm: %q, want %q", c.slo, c.cpu, got, c.want)
		}
	}
	fixed := sentences()
	fixed.BySize = nil
	if got := rules.Reach(&provider.Function{Inference: annotation.Inference{SLO: time.Second, MaxBatch: 1}}, fixed); got != "" {
		t.Errorf("a model of one size: %q", got)
	}
}
