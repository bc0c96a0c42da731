package scaling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Three instances that fill a core become fewer, one step at a time and without a
// start, as far as that serves more. A function's minimum of instances stays.
func TestMerge(t *testing.T) {
	configs := []capacity.Candidate{config(1, 250, 0, 29*ms), config(1, 500, 0, 12*ms), config(4, 500, 0, 33*ms), config(4, 750, 0, 22*ms), config(8, 1000, 0, 27*ms)}
	for _, c := range []struct {
		name         string
		largest, min int
		want         string
	}{
		{"they can take 16", 16, 0, "2 of up to ⟨4,500m,0%⟩, 0 starts"},
		{"they can take 1", 1, 0, "2 of up to ⟨1,500m,0%⟩, 0 starts"},
		{"there must be three", 16, 3, "3 of up to ⟨4,500m,0%⟩, 0 starts"},
	} {
		w := newWorld(DefaultSettings())
		w.nodes = []cluster.Node{node("a", 1000, 0, 8000<<20)}
		f := w.function("f")
		f.SLO, f.Queue, f.Configs, f.Rate, f.Min = 50*ms, capacity.LateBound, configs, 50, c.min
		for i, x := range []capacity.Candidate{configs[0], configs[0], configs[2]} {
			f.Instances = append(f.Instances, Running{ID: cluster.InstanceID(fmt.Sprint("i", i)), Node: "a", Config: x.Config, Largest: c.largest, Exec: x.Exec, Revision: 1, State: cluster.Ready})
		}
		// What the steering asks for, beyond the load: nothing else is exchanged for that.
		f.Level = 6
		starts := 0
		for range 30 {
			w.now = w.now.Add(100 * time.Millisecond)
			starts += len(w.scale().Start)
		}
		if got := fmt.Sprintf("%d of up to %v, %d starts", len(f.Instances), slices.MaxFunc(f.Instances, func(a, b Running) int { return a.Config.CPU - b.Config.CPU }).Config, starts); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
