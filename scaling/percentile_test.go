package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A higher percentile gives a load more instances, and never fewer than its work
// fills. 0 means the 99th percentile.
func TestPercentile(t *testing.T) {
	nodes := []cluster.Node{node("a", 64000, 0, 64<<30)}
	started := func(percentile float64) float64 {
		f := Function{Name: "f", SLO: 60 * ms, Percentile: percentile, Queue: capacity.LateBound, Rate: 100, Waiting: 1, Configs: []capacity.Candidate{config(1, 1000, 0, 40*ms)}}
		p := New(DefaultSettings()).Scale(epoch, []Function{f}, nodes)
		if len(p.Unplaced) > 0 {
			t.Errorf("%v.: %v", percentile, p.Unplaced)
		}
		return float64(len(p.Start))
	}
	last := 4.4 // 110/s · 40 ms
	for _, percentile := range []float64{-5, 50, 90, 95, 99, 99.9, 99.99} {
		n := started(percentile)
		if percentile > 0 && (n < last || percentile > 90 && n == last) {
			t.Errorf("%v.: %v instances after %v", percentile, n, last)
		}
		if percentile > 0 {
			last = n
		}
	}
	if started(0) != started(99) || started(math.NaN()) != started(99) || started(100) != started(99.99) || started(1) != started(50) {
		t.Error("0 and no number are not the 99th percentile, or 100 and 1 not the last that can be said")
	}
	f := Function{Name: "f", SLO: 60 * ms, Percentile: 99.9, Queue: capacity.LateBound, Rate: 100, Waiting: 1, Configs: []capacity.Candidate{config(1, 1000, 0, 40*ms)}}
	e := New(DefaultSettings())
	many := len(e.Scale(epoch, []Function{f}, nodes).Start)
	if f.Percentile = 50; len(e.Scale(epoch.Add(time.Second), []Function{f}, nodes).Start) >= many {
		t.Error("what was remembered for one percentile is taken for another")
	}
}
