package processes

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// A function that needs more than the machine has starts only as many instances as fit, a
// few at a time, and others start beside it.
func TestGreedyFunctionLeavesRoomForOthers(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("greedy", "a", between(10000, 10000))
		r.deploy("other", "a")
		for range 20 {
			time.Sleep(coldStart / 4)
			starting := map[string]int{}
			for _, in := range r.backend.living() {
				if in.State == cluster.Starting {
					starting[in.Function]++
				}
			}
			if n := starting[full("greedy")]; n > maxOwnStarting {
				t.Fatalf("%d instances of one function start at once, want at most %d", n, maxOwnStarting)
			}
		}
		r.answered("other", "a")
		time.Sleep(time.Minute)
		// The machine has 8 GiB, and each instance holds 16 MiB.
		if n := len(r.backend.living()); n != 8<<30/leastMemory {
			t.Errorf("%d instances live, want as many as the memory holds", n)
		}
		r.shows("greedy", 10000, 8<<30/leastMemory-1)
	})
}
