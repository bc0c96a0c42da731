package scaling

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// FuzzSets drives the engine over functions of which some are sets, while loads, nodes and
// instances come and go: no node ever gives more than it has, and every set has all its members.
func FuzzSets(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := DefaultSettings()
		if seed%3 == 0 {
			s.Options = capacity.Greedy()
		}
		w := newWorld(s)
		w.coldTime = time.Duration(r.IntN(3000)) * time.Millisecond
		for i := range 2 + r.IntN(8) {
			w.nodes = append(w.nodes, node(fmt.Sprint("n", i), 1000*(1+r.IntN(8)), 0, int64(1+r.IntN(16))<<30))
		}
		for i := range 1 + r.IntN(4) {
			w.randomSet(r, fmt.Sprint("f", i))
		}
		for range 40 {
			for _, f := range w.functions {
				switch r.IntN(6) {
				case 0:
					f.Rate, f.Waiting = 0, 0
				case 1:
					f.Rate, f.Waiting = float64(r.IntN(60)), r.IntN(5)
				case 2:
					f.Waiting = 0
				case 3:
					if r.IntN(4) == 0 {
						f.Revision++
					}
				}
			}
			w.now = w.now.Add(time.Duration(100+r.IntN(20_000)) * time.Millisecond)
			w.scale()
			w.checkSets(t)
		}
	})
}

// randomSet adds a function whose instances are mostly sets.
func (w *world) randomSet(r *rand.Rand, name string) {
	f := w.function(name)
	f.SLO, f.Queue, f.Max, f.Min = 500*ms, capacity.Queue(r.IntN(2)), r.IntN(4), r.IntN(2)
	f.ColdWait, f.Nodes = time.Duration(r.IntN(2))*30*time.Second, nil
	f.Max = max(f.Max, f.Min*f.Max)
	w.keepAlive[name], w.parkAfter[name] = time.Duration(5+r.IntN(60))*time.Second, time.Duration(r.IntN(2)*2)*time.Second
	if r.IntN(3) == 0 {
		f.Nodes = []string{"n0", "n1", "n2"}
	}
	for range 1 + r.IntN(4) {
		parts := 1 + r.IntN(5)
		c := config(1<<r.IntN(3), 500*parts*(1+r.IntN(4)), 0, time.Duration(20+r.IntN(150))*ms)
		c.Config.Memory = int64(parts*(1+r.IntN(6))) << 29
		c.Config.Parts, c.Config.Concurrency = parts, r.IntN(3)
		f.Configs = append(f.Configs, c)
	}
}

// checkSets checks what the world's instances hold.
func (w *world) checkSets(t *testing.T) {
	w.settle()
	for _, n := range w.nodes {
		if !(cluster.Resources{}).Fits(n.Free) {
			t.Fatalf("%s has %v, and %v of it is free", n.Name, n.Total, n.Free)
		}
	}
	for _, f := range w.functions {
		if f.Max > 0 && f.Revision == 1 && len(f.Instances) > f.Max {
			t.Fatalf("%s has %d instances, at most %d are allowed", f.Name, len(f.Instances), f.Max)
		}
		for _, in := range f.Instances {
			if in.Nodes == nil {
				continue
			}
			if len(in.Nodes) != in.Config.Members() || in.Node != in.Nodes[0] {
				t.Fatalf("a set of %d members on %q, its master on %s", in.Config.Members(), in.Nodes, in.Node)
			}
			if in.Parked {
				t.Fatalf("%s, a set over %q, is parked", in.ID, in.Nodes)
			}
		}
	}
}
