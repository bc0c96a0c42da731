package control

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/variant"
)

// unlike gives the rig two nodes of two types, of a core each.
func unlike(o *Options) {
	core := cluster.Resources{CPU: 1000, Memory: 64 << 30}
	o.Backend.(*fakeBackend).Machines = []cluster.Node{{Name: "n1", Type: "slow", Total: core}, {Name: "n2", Type: "fast", Total: core}}
}

// twoInstances keeps an instance of a core on each node.
func twoInstances(f *provider.Function) {
	wholeCore(f)
	f.Inference.MinReplicas, f.Inference.MaxReplicas, f.Replicas = 2, 2, 2
}

// byNode returns the time of a batch of 8 on each node, as the controller knows it.
func (r *rig) byNode(name string) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := map[string]time.Duration{}
	for _, in := range r.functions[full(name)].Instances {
		times[in.Node] = in.table[7]
	}
	return times
}

// Batches take three times as long on one type of nodes. Only the times of the instances there are
// corrected, and none of them counts as interfered with. New instances are planned with the longer
// times, since they may come to either.
func TestCorrectionsByTypeOfNode(t *testing.T) {
	tryWith(t, unlike, func(r *rig) {
		r.backend.take(always(1))
		r.backend.disturb("n1")
		r.measured("f", "m", twoInstances)
		r.until("two instances", func() bool { return len(r.byNode("f")) == 2 })
		if failed := r.load("f", 2*time.Millisecond, 40*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		times := r.byNode("f")
		if slow, fast := times["n1"], times["n2"]; slow < 54*time.Millisecond || slow > 60*time.Millisecond || fast < 18*time.Millisecond || fast > 20*time.Millisecond {
			t.Errorf("a batch takes 54 ms and 18 ms, %v", times)
		}
		if planned := r.known("f").exec(8, 1000); planned < 54*time.Millisecond {
			t.Errorf("new instances are planned with %v", planned)
		}
		if s := r.state("f"); s == variant.Interfered {
			t.Error("the slow node counts as disturbed")
		}
		time.Sleep(2 * time.Minute)
		r.corrections.mu.Lock()
		kept := slices.Sorted(maps.Keys(r.corrections.kept))
		r.corrections.mu.Unlock()
		if !slices.Contains(kept, full("f")+" on fast") || !slices.Contains(kept, full("f")+" on slow") {
			t.Errorf("kept are %v", kept)
		}
		// A type whose nodes were gone before this provider began leaves a correction, too.
		if err := r.corrections.PutCorrections(map[string]correction.State{full("f") + " on gone": {}}); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.corrections.mu.Lock()
		defer r.corrections.mu.Unlock()
		if len(r.corrections.kept) != 0 {
			t.Errorf("left are %v", slices.Sorted(maps.Keys(r.corrections.kept)))
		}
	})
}

// A second type of nodes comes while the function serves. Its instances there begin with what was
// seen on the first type, and instances on either keep their own times from then on.
func TestAnotherTypeComes(t *testing.T) {
	tryWith(t, func(o *Options) {
		unlike(o)
		b := o.Backend.(*fakeBackend)
		b.Machines = b.Machines[1:]
	}, func(r *rig) {
		r.backend.take(always(2))
		r.measured("f", "m", twoInstances)
		r.load("f", 20*time.Millisecond, 20*time.Second)
		if kept := r.only(); kept.Node != "n2" {
			t.Fatalf("%+v", kept)
		}
		r.backend.Mu.Lock()
		r.backend.Machines = append(r.backend.Machines, cluster.Node{Name: "n1", Type: "slow", Total: cluster.Resources{CPU: 1000, Memory: 64 << 30}})
		r.backend.disturbed = "n1"
		r.backend.Mu.Unlock()
		r.until("two instances", func() bool { return len(r.byNode("f")) == 2 })
		if first := r.byNode("f")["n1"]; first < 30*time.Millisecond {
			t.Errorf("the new type begins with %v, and a batch takes 36 ms instead of 18 ms", first)
		}
		r.load("f", 4*time.Millisecond, 40*time.Second) // More than the fast one alone can answer.
		times := r.byNode("f")
		if slow, fast := times["n1"], times["n2"]; slow < 108*time.Millisecond || slow > 120*time.Millisecond || fast < 36*time.Millisecond || fast > 40*time.Millisecond {
			t.Errorf("a batch takes 108 ms and 36 ms, %v", times)
		}
	})
}

// By its yardstick a type of nodes is so slow that the objective cannot be met there: nothing
// starts there, and the function serves from the others.
func TestNodesThatAreTooSlow(t *testing.T) {
	tryWith(t, func(o *Options) {
		unlike(o)
		o.Yardstick = func(kind string) float64 { return map[string]float64{"slow": 120, "fast": 40}[kind] }
	}, func(r *rig) {
		r.backend.take(always(1))
		r.backend.disturb("n1")
		r.measured("f", "m", wholeCore, within(10*time.Millisecond))
		if failed := r.load("f", 20*time.Millisecond, 10*time.Second); failed > 1 { // The first finds no instance.
			t.Errorf("%d requests failed", failed)
		}
		r.backend.Mu.Lock()
		defer r.backend.Mu.Unlock()
		if len(r.backend.Started) == 0 {
			t.Error("nothing was started")
		}
		for _, in := range r.backend.Started {
			if in.Node != "n2" {
				t.Errorf("started on %s", in.Node)
			}
		}
	})
}

// The yardsticks come after the function, whose profile an earlier version stored without one. Then
// nothing starts where the objective cannot be met, and a reading that was too slow is forgiven.
func TestYardsticksThatComeLater(t *testing.T) {
	var slow, own atomic.Int64
	tryWith(t, func(o *Options) {
		unlike(o)
		o.Yardstick = func(kind string) float64 {
			if kind == "slow" {
				return float64(slow.Load())
			}
			return float64(own.Load()) // That of the fast ones.
		}
	}, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", wholeCore, within(10*time.Millisecond))
		var unsuited []string
		var paces []*pace
		look := func() {
			time.Sleep(2 * yardstickPeriod)
			r.mu.Lock()
			defer r.mu.Unlock()
			a := r.functions[full("f")].artefacts[0]
			a.profile.Yardstick = 0
			unsuited, paces = a.unsuited, slices.Clone(a.paces)
		}
		if look(); len(unsuited) > 0 || len(paces) != 3 || paces[1].margin != latency.Unpaced || paces[2].margin != latency.Unpaced {
			t.Errorf("nothing is known: %v, %+v", unsuited, paces[1])
		}
		own.Store(40)
		slow.Store(120)
		if look(); !slices.Equal(unsuited, []string{"slow"}) || paces[1].kind != "fast" || paces[1].profile != paces[0].profile {
			t.Errorf("three times as slow: %v, %+v", unsuited, paces[1])
		}
		slow.Store(50)
		if look(); len(unsuited) > 0 || paces[2].by < 1.2 || paces[2].by > 1.3 || paces[2].margin != latency.PacedByYardstick {
			t.Errorf("a quarter slower: %v, %+v", unsuited, paces[2])
		}
	})
}

// Instances that were idle since their start follow a yardstick that comes later.
func TestIdleInstancesFollowTheYardstick(t *testing.T) {
	var slow atomic.Int64
	tryWith(t, func(o *Options) {
		unlike(o)
		o.Yardstick = func(kind string) float64 {
			if kind == "slow" {
				return float64(slow.Load())
			}
			return 40
		}
	}, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", twoInstances)
		r.until("two instances", func() bool { return len(r.byNode("f")) == 2 })
		slow.Store(80)
		time.Sleep(2 * yardstickPeriod)
		if times := r.byNode("f"); times["n1"] < 2*times["n2"] || times["n2"] < 18*time.Millisecond {
			t.Errorf("a batch takes 36 ms and more on n1, 18 ms on n2: %v", times)
		}
	})
}

// The margin after the yardstick is an assumption: it neither refuses a function nor keeps it from
// nodes that are fast enough without it.
func TestMarginOfUnlikeNodesRefusesNothing(t *testing.T) {
	tryWith(t, func(o *Options) {
		unlike(o)
		o.Yardstick = func(kind string) float64 { return map[string]float64{"slow": 44, "fast": 43}[kind] }
	}, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", wholeCore, within(5500*time.Microsecond))
		r.mu.Lock()
		defer r.mu.Unlock()
		if a := r.functions[full("f")].artefacts[0]; len(a.unsuited) > 0 || a.paces[1].margin != 0 || a.paces[1].by <= 1 {
			t.Errorf("unsuited %v, %+v", a.unsuited, a.paces[1])
		}
	})
}

// Types are told apart from when there are two, and a bounded number of them.
func TestTypesOfNodes(t *testing.T) {
	node := func(name, kind string) cluster.Node { return cluster.Node{Name: name, Type: kind} }
	var types nodeTypes
	if types.look([]cluster.Node{node("a", "A"), node("b", "A")}) || types.kinds != nil || types.kind("a") != "" {
		t.Errorf("%+v", types)
	}
	both := []cluster.Node{node("a", "A"), node("b", "A"), node("c", "C")}
	if !types.look(both) || types.look(both) || types.kind("c") != "C" || types.kind("b") != "A" || types.kind("gone") != "" {
		t.Errorf("%+v", types)
	}
	if !types.look([]cluster.Node{node("c", "C"), node("d", "C")}) || types.kind("c") != "C" || len(types.kinds) != 1 {
		t.Errorf("one is left: %+v", types)
	}
	if types.look(nil) || len(types.kinds) != 1 {
		t.Errorf("none is left: %+v", types)
	}
	var many []cluster.Node
	for i := range 3 * maxKinds {
		many = append(many, node(strings.Repeat("n", i+1), strings.Repeat("k", i+1)))
	}
	if !types.look(many) || len(types.kinds) != maxKinds+1 || types.kind("n") != "k" || types.kind(many[2*maxKinds].Name) != "" {
		t.Errorf("%d kinds", len(types.kinds))
	}
}
