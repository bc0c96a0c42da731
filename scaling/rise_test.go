package scaling

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The first requests after a pause do not take from an instance the share that it had: most of the load is still to come.
// If it stays low, they do.
func TestShareStaysWhileALoadBegins(t *testing.T) {
	w := newWorld(DefaultSettings())
	w.nodes = append(w.nodes, node("a", 1000, 0, 8<<30))
	f := w.function("f")
	f.SLO, f.Queue, f.Credit = 50*ms, capacity.LateBound, 1
	f.Configs = append(f.Configs, config(8, 250, 0, 8*ms), config(8, 1000, 0, 2*ms))
	large := f.Configs[1]
	f.Instances = []Running{{ID: "f1", Node: "a", Config: large.Config, Exec: large.Exec, Largest: 8, Revision: 1, State: cluster.Ready, Loading: 200 * ms}}
	tick := func(rate float64, d time.Duration) int {
		f.Rate = rate
		for range d / (100 * ms) {
			w.now = w.now.Add(100 * ms)
			w.scale()
		}
		return f.Instances[0].Config.CPU
	}
	for _, c := range []struct {
		rate float64
		d    time.Duration
		cpu  int
	}{{3000, 5 * time.Second, 1000}, {0.001, 100 * ms, 1000}, {0, 4 * time.Second, 250}} {
		if cpu := tick(c.rate, c.d); cpu != c.cpu {
			t.Errorf("after %v with %v/s it has %dm, want %dm", c.d, c.rate, cpu, c.cpu)
		}
	}
	f.Instances[0].Config, f.Instances[0].Exec = large.Config, large.Exec // As one that was parked with its share.
	if cpu := tick(27, 300*ms); cpu != 1000 {
		t.Errorf("a load that begins finds %dm", cpu)
	}
	if cpu := tick(27, 4*time.Second); cpu != 250 {
		t.Errorf("a load that stays low has %dm", cpu)
	}
}
