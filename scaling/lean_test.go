package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// leanWorld has 16 nodes of 16 cores and a GPU. Four cores serve one request of its
// function at a time. Half a GPU serves four, much faster, and costs more for each
// request.
func leanWorld() (*world, *Function) {
	w := newWorld(DefaultSettings())
	for i := range 16 {
		w.nodes = append(w.nodes, node(fmt.Sprintf("n%02d", i), 16000, 100, 64<<30))
	}
	f := w.function("f")
	f.SLO, f.Percentile, f.Queue = 200*ms, 99, capacity.LateBound
	for _, c := range []capacity.Candidate{config(1, 4000, 0, 150*ms), config(4, 2000, 50, 80*ms)} {
		c.Mean = c.Exec * 4 / 5
		f.Configs = append(f.Configs, c)
	}
	return w, f
}

// load sets the function's load for a while and returns the instances that were
// started.
func (w *world) load(f *Function, rate float64, seconds int) (started []Start, last Plan) {
	for range seconds {
		w.now, f.Rate, f.Waiting = w.now.Add(time.Second), rate, 0
		if len(f.Instances) == 0 {
			f.Waiting = 1
		}
		last = w.scale()
		started = append(started, last.Start...)
	}
	return started, last
}

// While enough nodes are empty for as much load again, a function gets the instances
// with the least cost for each request. The number of nodes in use does not matter.
// The load goes up and down for hours.
func TestNoDearInstancesWhileThereIsRoom(t *testing.T) {
	w, f := leanWorld()
	for i, rate := range []float64{20, 90, 200, 310, 150, 320, 90, 310, 50, 320} {
		started, last := w.load(f, rate, 90)
		for _, s := range started {
			if s.Config.GPU > 0 {
				t.Errorf("step %d, %v/s: started %v", i, rate, s.Config)
			}
		}
		if len(last.Unplaced) > 0 {
			t.Errorf("step %d, %v/s: unplaced %+v", i, rate, last.Unplaced)
		}
	}
	used := map[string]bool{}
	for _, in := range f.Instances {
		used[in.Node] = true
	}
	if len(used) < 10 {
		t.Errorf("320/s are on %d nodes: that says nothing of many", len(used))
	}
}

// The empty nodes take as much load again, and then nodes are filled.
func TestLeanLoadDoubles(t *testing.T) {
	w, f := leanWorld()
	w.load(f, 380, 90)
	before := map[cluster.InstanceID]bool{}
	for _, in := range f.Instances {
		before[in.ID] = true
	}
	_, last := w.load(f, 760, 5)
	if len(last.Unplaced) > 0 {
		t.Errorf("unplaced: %+v", last.Unplaced)
	}
	stay, gpus := 0, 0
	for _, in := range f.Instances {
		if before[in.ID] {
			stay++
		}
		if in.Config.GPU > 0 {
			gpus++
		}
	}
	if stay != len(before) || gpus == 0 {
		t.Errorf("%d of %d instances stay, %d have GPUs", stay, len(before), gpus)
	}
}
