package sim

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func same(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(b)) }

// Two machines have two nodes each, with 16 cores and a GPU. A node weighs β·16 + 100 =
// 109.6, a machine 219.2.
func TestFragmentsArePerMachineWithAnInstance(t *testing.T) {
	var nodes []cluster.Node
	for _, name := range []string{"a/0", "a/1", "b/0", "b/1"} {
		nodes = append(nodes, cluster.Node{Name: name, Total: cluster.Resources{CPU: 16_000, GPU: 100}})
	}
	m := NewMachines(nodes, func(node string) string { return node[:1] }, 0.6, Window{From: 10 * time.Second, To: 40 * time.Second})
	half := cluster.Resources{CPU: 8000, GPU: 50} // 54.8
	m.Begin(0, 0, half)
	m.Begin(20*time.Second, 1, half)
	if held, active, fragments := m.Now(); !same(held, 109.6) || active != 1 || !same(fragments, 50) {
		t.Errorf("held %v on %d machines, %v %% left", held, active, fragments)
	}
	m.Begin(20*time.Second, 3, half)
	m.Change(25*time.Second, half, half.Add(half))
	m.End(30*time.Second, 0, half)
	m.End(30*time.Second, 1, half)
	m.End(35*time.Second, 3, half.Add(half))
	if _, active, fragments := m.Now(); active != 0 || fragments != 0 {
		t.Errorf("%d machines are active at last, %v %% left", active, fragments)
	}
	// From 10 s to 20 s one machine with 54.8 of 219.2; to 25 s two with 164.4 of
	// 438.4; to 30 s two with 219.2; to 35 s one with 109.6 of 219.2.
	held := 10*54.8 + 5*164.4 + 5*219.2 + 5*109.6
	whole := 10*219.2 + 10*438.4 + 5*219.2
	active, fragments := m.Finish(100 * time.Second)
	if !same(active, 10+5*2+5*2+5) || !same(fragments, 100*(1-held/whole)) {
		t.Errorf("active for %v s, %v %% left, want %v", active, fragments, 100*(1-held/whole))
	}
}

func TestWindow(t *testing.T) {
	w := Window{From: 10, To: 20}
	for _, c := range []struct{ from, to, want time.Duration }{{0, 5, 0}, {5, 15, 5}, {12, 14, 2}, {15, 30, 5}, {0, 30, 10}, {20, 30, 0}, {14, 12, 0}} {
		if got := w.Overlap(c.from, c.to); got != c.want {
			t.Errorf("[%d, %d): %d, want %d", c.from, c.to, got, c.want)
		}
	}
	if w.Has(9) || !w.Has(10) || !w.Has(19) || w.Has(20) {
		t.Error("the window is not [10, 20)")
	}
}

func TestRecordMeans(t *testing.T) {
	var r Record
	if c, q, e := r.Means(); c+q+e != 0 {
		t.Error("means of nothing")
	}
	r.Executed(6, 2, 8, true)
	r.Flowed(2, 3, 5, 8, false)
	r.Flowed(0, 3, 5, 8, false)
	r.Batch(4, 2)
	if c, q, e := r.Means(); c != 2 || q != 2 || e != 4 || r.Served != 3 || r.Latency.Count() != 3 || r.Batches[4] != 2 {
		t.Errorf("cold %d, queue %d, exec %d of %+v", c, q, e, r)
	}
}
