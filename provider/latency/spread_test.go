package latency

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// Executions with a mean of 10 ms and a 95th percentile of 12 ms have a spread of
// ln(1.2)/1.645 = 0.111. The spread of too few is unknown. It is 0 if the percentile is not
// above the mean.
func TestSpread(t *testing.T) {
	p := &profiler.Profile{Measurements: []profiler.Measurement{{Batch: 1, Threads: 1, Median: 10_000, P95: 10_000, CPU: 10_000}}}
	promised, ok := p.ExecTime(1, profiler.Share{CPU: 1000})
	if !ok {
		t.Fatal("no time")
	}
	table := func(factor float64) func(profiler.Share) []time.Duration {
		return func(on profiler.Share) []time.Duration {
			if on.CPU != 1000 {
				t.Errorf("asked for %v", on)
			}
			return []time.Duration{time.Duration(factor * float64(promised))}
		}
	}
	means := Means{}
	for n := range 200 {
		if n == 20 {
			if got := means.Spread(p, 0.95, table(1.2)); got != 0 {
				t.Errorf("%v of %d executions", got, n)
			}
		}
		means.Observe(profiler.Share{CPU: 1000}, 1, promised, []time.Duration{promised})
		if n%10 == 0 {
			means.Observe(profiler.Share{CPU: 250}, 1, 5*promised, []time.Duration{promised})
		}
	}
	for factor, want := range map[float64]float64{1.2: math.Log(1.2) / 1.645, 1: 0, 20: maxSpread} {
		if got := means.Spread(p, 0.95, table(factor)); math.Abs(got-want) > 1e-3 {
			t.Errorf("%v above the mean: %v, want %v", factor, got, want)
		}
	}
	if got := means.Spread(p, 0.5, table(1.2)); got != 0 {
		t.Errorf("of the median: %v", got)
	}
}
