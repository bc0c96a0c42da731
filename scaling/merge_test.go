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

// A body with a shadow of the same share on a node with more than both: the larger quota serves more than the
// pair, but the shadow is the cheaper way. Whatever a plan does, later ones do not undo it.
func TestMergeWithShadowEnds(t *testing.T) {
	const share = 300
	configs := []capacity.Candidate{config(1, share, 0, 50*ms), config(1, 600, 0, 23*ms), config(1, 700, 0, 22*ms), config(1, 750, 0, 22*ms)}
	for _, cpu := range []int{600, 620, 650, 700, 750, 900} {
		for _, without := range []int{0, 1, 2} { // Of the larger quotas.
			w := newWorld(DefaultSettings())
			w.coldTime = 100 * ms
			w.nodes = []cluster.Node{node("a", cpu, 0, 8000<<20)}
			f := w.function("f")
			f.SLO, f.Queue, f.Rate = 200*ms, capacity.LateBound, 80
			f.Configs = slices.Concat(configs[:1], configs[1+without:])
			f.Pairings = []Pairing{{CPU: share, Part: "0:3", Config: config(1, share, 0, 0).Config, Pair: []capacity.Candidate{config(1, share, 0, 25*ms)}}}
			f.Instances = []Running{{ID: "body", Node: "a", Config: configs[0].Config, Largest: 16, Exec: configs[0].Exec, Revision: 1, State: cluster.Ready, Paired: true}}
			changes, late := 0, 0
			for tick := range 100 {
				w.now = w.now.Add(100 * time.Millisecond)
				plan := w.scale()
				if changes += len(plan.Start) + len(plan.Stop); tick >= 50 {
					late += len(plan.Start) + len(plan.Stop)
				}
			}
			if changes > 4 || late > 0 {
				t.Errorf("on %dm, without %d: %d starts and stops in 10 s, %d in the last five", cpu, without, changes, late)
			}
		}
	}
}

// A body whose shadow holds the rest of the node serves less than it would alone with the share of both. The
// shadow goes, the body's quota rises, and nothing starts. The pair stays if the quota cannot be changed,
// or if the pair serves more.
func TestMergeWithShadow(t *testing.T) {
	configs := []capacity.Candidate{config(1, 250, 0, 29*ms), config(1, 500, 0, 12*ms), config(4, 500, 0, 33*ms)}
	for _, c := range []struct {
		name  string
		pair  time.Duration
		fixed bool
		want  string
	}{
		{"a pair of one request at a time", 18 * ms, false, "⟨4,500m,0%⟩ with 0 shadows, 0 starts"},
		{"its quota cannot be changed", 18 * ms, true, "⟨1,250m,0%⟩ with 1 shadows, 0 starts"},
		{"a pair that serves more", 7 * ms, false, "⟨1,250m,0%⟩ with 1 shadows, 0 starts"},
	} {
		w := newWorld(DefaultSettings())
		w.nodes = []cluster.Node{node("a", 500, 0, 8000<<20)}
		f := w.function("f")
		f.SLO, f.Queue, f.Configs, f.Rate = 50*ms, capacity.LateBound, configs, 50
		f.Level = 6
		f.Pairings = []Pairing{{CPU: 250, Part: "0:3", Config: config(1, 250, 0, 0).Config, Pair: []capacity.Candidate{config(1, 250, 0, c.pair)}}}
		f.Instances = []Running{{ID: "body", Node: "a", Config: configs[0].Config, Largest: 16, Exec: configs[0].Exec, Revision: 1, State: cluster.Ready, Paired: true, Fixed: c.fixed}}
		f.Shadows = []Running{{ID: "shadow", Node: "a", Config: f.Pairings[0].Config, Revision: 1, State: cluster.Ready, Role: cluster.Shadow, Part: "0:3", Body: "body"}}
		starts := 0
		for range 30 {
			w.now = w.now.Add(100 * time.Millisecond)
			starts += len(w.scale().Start)
		}
		if got := fmt.Sprintf("%v with %d shadows, %d starts", f.Instances[0].Config, len(f.Shadows), starts); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
