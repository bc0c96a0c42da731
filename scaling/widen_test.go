package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// sharesWorld has nodes with GPUs for a function whose instances cost 20 whatever their share of
// the GPU's time, and 1 for each tenth of it. A request takes a tenth for exec.
func sharesWorld(exec time.Duration, tenths ...int) (*world, *Function) {
	w := newWorld(DefaultSettings())
	for i := range 4 {
		w.nodes = append(w.nodes, node(fmt.Sprintf("n%d", i), 1000, 100, 64<<30))
	}
	f := w.function("f")
	f.SLO, f.Percentile, f.Queue = 300*ms, 99, capacity.LateBound
	for _, n := range tenths {
		f.Configs = append(f.Configs, config(1, 0, 20+n, exec/time.Duration(n)))
	}
	return w, f
}

// held is what a function's instances cost.
func held(f *Function) (sum int) {
	for _, in := range f.Instances {
		sum += in.Config.GPU
	}
	return sum
}

// A load that rises in small steps gets large instances, since these cost hardly more: three
// tenths cost 23 and serve 100 requests/s, one tenth costs 21 and serves 33. A load of 6/s gets a
// tenth, because three are more than it needs. Up to 300/s, which are 330/s with headroom, ten of
// a tenth would cost 210.
func TestGrowthIsWidened(t *testing.T) {
	w, f := sharesWorld(30*ms, 1, 2, 3)
	for rate := 6.0; rate <= 300; rate += 6 {
		w.load(f, rate, 2)
		if rate == 6 && held(f) != 21 {
			t.Errorf("%v/s: instances for %d, want 21", rate, held(f))
		}
	}
	if held(f) > 120 {
		t.Errorf("instances for %d, want five at most", held(f))
	}
}

// Instances of the same artefact that are too small for the load make room for larger ones,
// after the time in which that pays: 20 s if they load in 4 s. As many as serve the load serve
// meanwhile.
func TestSmallInstancesAreJoined(t *testing.T) {
	for _, loading := range []time.Duration{4 * time.Second, 0} {
		w, f := sharesWorld(100*ms, 1, 5)
		for i := range 8 {
			f.Instances = append(f.Instances, Running{
				ID: cluster.InstanceID(fmt.Sprint("small", i)), Node: fmt.Sprintf("n%d", i%2), Config: f.Configs[0].Config, Exec: f.Configs[0].Exec,
				Revision: 1, State: cluster.Ready, Loading: loading,
			})
		}
		due := 20
		if loading == 0 {
			due = 60 // The window.
		}
		for second := range due + 10 {
			w.load(f, 40, 1)
			serving := 0.0
			for _, in := range f.Instances {
				if in.State == cluster.Ready {
					serving += 1 / in.Exec.Seconds()
				}
			}
			if serving < 40 {
				t.Fatalf("loading in %v, second %d: %v/s of 40/s", loading, second, serving)
			}
			if second < due-1 && held(f) != 8*21 {
				t.Fatalf("loading in %v, second %d: instances for %d", loading, second, held(f))
			}
		}
		if held(f) > 50 {
			t.Errorf("loading in %v: instances for %d, want two at most", loading, held(f))
		}
	}
}

// With a maximum number of instances there is none beside them to exchange them for.
func TestExchangesRespectMax(t *testing.T) {
	w, f := sharesWorld(100*ms, 1, 5)
	f.Max = 2
	for i := range 2 {
		f.Instances = append(f.Instances, Running{
			ID: cluster.InstanceID(fmt.Sprint("small", i)), Node: "n0", Config: f.Configs[0].Config, Exec: f.Configs[0].Exec, Revision: 1, State: cluster.Ready,
		})
	}
	for range 200 {
		if w.load(f, 8, 1); len(f.Instances) > 2 {
			t.Fatalf("%d instances", len(f.Instances))
		}
	}
}

// An idle function keeps its instances for twice as long as they took to load, whatever the
// cold-start policy says: 5 s, so 10 s. A keep-alive that the user states counts.
func TestLoadedInstancesAreKept(t *testing.T) {
	for stated, seconds := range map[bool]int{false: 10, true: 0} {
		w, f := sharesWorld(100*ms, 1)
		w.keepAlive["f"], f.RetireStated = time.Second, stated
		w.load(f, 2, 5)
		f.Instances[0].Loading = 5 * time.Second
		for second := range 15 {
			w.now, f.Rate, f.Waiting = w.now.Add(time.Second), 0, 0
			w.scale()
			if kept := len(f.Instances) > 0; kept != (second < seconds) {
				t.Errorf("stated %v, idle for %d s: kept %v", stated, second, kept)
			}
		}
	}
}
