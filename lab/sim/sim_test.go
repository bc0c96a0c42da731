package sim

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
)

// Every system serves in time a load that the machines can carry, and accounts for every
// request. BATCH as published only accounts for them: it plans each hour by the arrivals of
// the one before, of which these seconds have none.
func TestEverySystemServes(t *testing.T) {
	for _, name := range baselines.Names() {
		for _, fluid := range []bool{false, true} {
			s := three(t, name, 200)
			s.Fluid, s.Duration, s.Warmup = fluid, 27*time.Second, 15*time.Second
			for _, f := range simulate(t, s).Functions {
				if f.Requests < 2_200 || f.Served+f.Rejected != f.Requests || f.Latency.Count() != f.Served {
					t.Errorf("%s, %s: %d requests, %d served, %d rejected, %d latencies", name, f.Name, f.Requests, f.Served, f.Rejected, f.Latency.Count())
				}
				if v := f.Violations(); v > 0.01 && name != baselines.BatchPublished {
					t.Errorf("%s, fluid %v, %s: %.2f %% violations", name, fluid, f.Name, 100*v)
				}
			}
		}
	}
}
