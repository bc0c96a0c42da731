package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
)

// BATCH's buffer gets other batch sizes as the load changes. The existing instances execute
// them; none is started for it.
func TestTheBufferIsSetWithoutNewInstances(t *testing.T) {
	s := three(t, baselines.Batch, 0)
	s.Duration, s.Warmup, s.Functions = 3*time.Minute, 0, s.Functions[:1]
	rate := func(at time.Duration) float64 {
		if at < time.Minute {
			return 5
		}
		return 400
	}
	s.Functions[0].Arrivals = &stream{rate, 400, 0, rand.New(rand.NewPCG(1, 5))}
	r := simulate(t, s)
	f := &r.Functions[0]
	sizes, instances := map[cluster.Resources]int{}, 0.0
	for _, c := range f.Configs {
		if c.Requests > 0 {
			sizes[c.Config.Resources]++
			instances += c.InstanceSeconds
		}
	}
	if len(sizes) != 1 || len(f.Configs) < 2 {
		t.Errorf("batches of several sizes on %v: %+v", sizes, f.Configs)
	}
	if r.Stops > 0 || f.Violations() > 0.05 {
		t.Errorf("%d instances started, %d stopped, %v of the requests late", r.Starts, r.Stops, f.Violations())
	}
	if d := instances / f.InstanceSeconds; d < 0.99 || d > 1.01 {
		t.Errorf("the configs had instances for %v s, the function for %v", instances, f.InstanceSeconds)
	}
}
