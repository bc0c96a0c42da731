package scaling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// bind binds some functions to some nodes, of which one may not exist, and unbinds
// others.
func (w *world) bind(r *rand.Rand) {
	for _, f := range w.functions {
		switch r.IntN(4) {
		case 0:
			f.Nodes = nil
		case 1:
			f.Nodes = []string{}
			for i := range len(w.nodes) + 1 {
				if r.IntN(2) > 0 {
					f.Nodes = append(f.Nodes, fmt.Sprint("n", i))
				}
			}
		}
	}
}

// A function that has no allowed node reports that, and others are planned as if it
// were not there.
func TestNowhere(t *testing.T) {
	w := crowdedWorld()
	without := w.scale()
	w = crowdedWorld()
	lost := w.function("lost")
	*lost = Function{Name: "lost", Revision: 1, SLO: 100 * ms, Queue: capacity.LateBound, Rate: 50, Waiting: 3, Nodes: []string{}, Configs: []capacity.Candidate{config(1, 1000, 0, 10*ms)}}
	with := w.scale()
	at := slices.IndexFunc(with.Unplaced, func(u Unplaced) bool { return u.Function == "lost" })
	if at < 0 || with.Unplaced[at].Reason != placing.NoNode {
		t.Fatalf("unplaced: %v", with.Unplaced)
	}
	if a, b := fmt.Sprint(without.Start), fmt.Sprint(with.Start); a != b {
		t.Errorf("others get\n%s\nwithout it\n%s", b, a)
	}
}

// In a cluster that is too small, instances are exchanged as usual, and none goes to a
// node that it may not use. A function that may use more nodes leaves a node to a
// function that may use no other.
func TestExchangesKeepToNodes(t *testing.T) {
	w := crowdedWorld()
	bound := map[string][]string{"cores": {"n0", "n1", "n2", "n3"}, "gpu": {"n3", "n4"}}
	for i, f := range w.functions {
		f.Nodes = bound[f.Name]
		f.Rate, f.Waiting = float64(600-150*i), 1
		for range 3 {
			w.now = w.now.Add(time.Second)
			w.scale()
		}
		f.Rate, f.Waiting = 3000, 0
	}
	last, rearranged := 0, 0
	for i := range 240 {
		w.now = w.now.Add(time.Second)
		plan := w.scale()
		for _, s := range plan.Stop {
			if s.Why == Rearranged {
				rearranged++
			}
		}
		for _, s := range plan.Start {
			if on := bound[s.Function]; on != nil && !slices.Contains(on, s.Node) {
				t.Fatalf("second %d: %s starts on %s", i, s.Function, s.Node)
			}
		}
		if len(plan.Stop)+len(plan.Start) > 0 {
			last = i
		}
	}
	if rearranged == 0 || last > 150 {
		t.Errorf("%d instances were exchanged, the last after %d s", rearranged, last)
	}
	p := w.views()
	for i := range p.nodes {
		p.nodes[i].Free = p.nodes[i].Total
	}
	ideal := p.ask(p.views, joint.Thrift{Crowded: true}, func(v *view) shortage { return shortage{whole: v.demand} })
	_, s := ideal.Solve(p.space())
	for k, v := range p.views {
		if got, want := v.packedCapacity()/v.demand, min(1, s.Served[k]/v.demand); got < 0.9*want {
			t.Errorf("%v of %s is served, of an ideal plan %v", got, v.Name, want)
		}
	}
}

// The benchmark is a pass that plans a load step of 40 functions on 2,000 nodes; each
// of four groups may use a quarter of the nodes.
func BenchmarkEngineOnZones(b *testing.B) {
	for _, zones := range []int{0, 4} {
		b.Run(fmt.Sprint(zones, " zones"), func(b *testing.B) {
			d, nodes := fleet()
			var functions []Function
			for i := range 40 {
				f := Function{Name: fmt.Sprint("f", i), SLO: d.SLO, Configs: d.Configs, Rate: 2000, Waiting: 1, Queue: capacity.LateBound}
				for n := range nodes {
					if zones > 0 && n%zones == i%zones {
						f.Nodes = append(f.Nodes, nodes[n].Name)
					}
				}
				functions = append(functions, f)
			}
			for b.Loop() {
				if p := New(DefaultSettings()).Scale(epoch, functions, nodes); len(p.Start) < 40 {
					b.Fatal(len(p.Start))
				}
			}
		})
	}
}
