package coldstart

import "testing"

func TestGreedyDual(t *testing.T) {
	g := NewGreedyDual()
	g.Used("often", 100, 2, 1000)
	g.Used("slow", 1, 200, 1000)
	g.Used("large", 100, 2, 100_000)
	if often, slow, large := g.Worth("often"), g.Worth("slow"), g.Worth("large"); often != 0.2 || slow != 0.2 || large != 0.002 {
		t.Errorf("worth: often called %v, slow to start %v, large %v", often, slow, large)
	}
	g.Evicted("large")
	if g.Worth("large") != 0 {
		t.Error("what was evicted is still worth something")
	}
	// Every eviction makes what is used from then on worth more.
	g.Evicted("slow")
	g.Used("new", 1, 2, 1000)
	if got := g.Worth("new"); got != 0.2+0.002 {
		t.Errorf("new: %v", got)
	}
	if g.Worth("new") <= g.Worth("often") {
		t.Error("what was not used for long is worth more than what is")
	}
}
