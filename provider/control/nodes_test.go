package control

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/nodes"
)

// The metric and the platform hear of a node that is wanted, and of one that can go.
func TestNodesWanted(t *testing.T) {
	var told atomic.Pointer[nodes.Wanted]
	tryWith(t, func(o *Options) {
		o.NodesWanted = func(all []nodes.Wanted) { told.Store(&all[0]) }
	}, func(r *rig) {
		want := func(n int) func() bool {
			return func() bool { w := told.Load(); return w != nil && w.Count == n && r.wanted("cpu") == n }
		}
		r.until("one node is wanted", want(1))
		r.measured("fn", "plain", func(f *provider.Function) {
			wholeCore(f)
			f.Inference.MaxReplicas, f.Replicas = 4, 4
		})
		r.until("four instances live", func() bool { return len(r.backend.living()) == 4 })
		r.until("four of four cores are held", want(2))
		r.backend.Mu.Lock()
		r.backend.Machines = append(r.backend.Machines, cluster.Node{Name: "n2", Total: r.backend.Machines[0].Total})
		r.backend.Mu.Unlock()
		r.until("the second one is there", func() bool { w := told.Load(); return w.Present == 2 && w.Count == 2 })
		if err := r.Scale(full("fn"), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		if !want(2)() {
			t.Errorf("after 9 minutes: %+v", told.Load())
		}
		time.Sleep(3 * time.Minute)
		if w := told.Load(); !want(1)() || w.Drain == "" {
			t.Errorf("after 12 minutes: %+v", w)
		}
		if r.wanted("gpu") != 0 {
			t.Error("a GPU node is wanted")
		}
	})
}

// The instances of a node that can go start elsewhere first, and no request fails. Without a
// platform that listens, they stay.
func TestNodeIsDrained(t *testing.T) {
	for _, listens := range []bool{true, false} {
		apart := atomic.Bool{}
		apart.Store(true)
		tryWith(t, func(o *Options) {
			b := o.Backend.(*fakeBackend)
			b.Machines = append(b.Machines, cluster.Node{Name: "n2", Total: b.Machines[0].Total})
			o.Eligible = func(f *provider.Function) ([]string, string) {
				switch {
				case !apart.Load():
					return nil, ""
				case f.Name == full("a"):
					return []string{"n1"}, ""
				}
				return []string{"n2"}, ""
			}
			if listens {
				o.NodesWanted = func([]nodes.Wanted) {}
			}
		}, func(r *rig) {
			one := func(f *provider.Function) {
				wholeCore(f)
				f.Replicas = 1
			}
			r.measured("a", "plain", one)
			r.measured("b", "plain", one)
			r.until("each has an instance", func() bool { return len(r.backend.living()) == 2 })
			time.Sleep(11 * time.Minute)
			on := func(node string) (n int) {
				for _, in := range r.backend.living() {
					if in.Node == node {
						n++
					}
				}
				return n
			}
			if on("n1") != 1 || on("n2") != 1 {
				t.Fatal("a node was drained although its instance fits nowhere else")
			}
			apart.Store(false)
			r.loaded("a", 100*time.Millisecond, 12*time.Minute, func() { time.Sleep(12 * time.Minute) })
			if want := map[bool]int{true: 0, false: 1}[listens]; on("n1") != want || on("n2") != 2-want {
				t.Errorf("listens %v: %d and %d instances", listens, on("n1"), on("n2"))
			}
			r.answered("a", "plain")
			if on("n1") > 0 && listens {
				t.Error("an instance has started on the node that is to go")
			}
		})
	}
}

// wanted is the metric of a kind of nodes, -1 if it is absent.
func (r *rig) wanted(kind string) int {
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "faas_infer_nodes_wanted" && m.GetLabel()[0].GetValue() == kind {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return -1
}

// A replica that does not lead shows nothing.
func TestNodesWantedAtTheLeader(t *testing.T) {
	var told [2]atomic.Pointer[[]nodes.Wanted]
	number := 0
	together(t, func(o *Options) {
		i := number
		number++
		o.NodesWanted = func(all []nodes.Wanted) { told[i].Store(&all) }
	}, func(leader, follower *replica) {
		leader.until("it shows them", func() bool { return leader.wanted("cpu") == 1 })
		if n := follower.wanted("cpu"); n != -1 {
			t.Errorf("the follower shows %d", n)
		}
		leader.leads.Store(false)
		follower.leads.Store(true)
		follower.until("the other one shows them", func() bool { return follower.wanted("cpu") == 1 })
		leader.until("the former one hides them", func() bool { return leader.wanted("cpu") == -1 })
		if *told[0].Load() != nil || len(*told[1].Load()) != 2 {
			t.Errorf("told %v and %v", *told[0].Load(), *told[1].Load())
		}
	})
}

// Instances of a node that map the same weights count them once: in what is free, in what functions hold,
// and in how many nodes there should be.
func TestMappedWeightsCountOnce(t *testing.T) {
	const weights = 50 << 20
	tryWith(t, func(o *Options) { o.Mapped = func(string) int64 { return weights } }, func(r *rig) {
		r.backend.widen(8000)
		r.measured("fn", "plain", wholeCore, func(f *provider.Function) { f.Inference.MinReplicas, f.Inference.MaxReplicas, f.Replicas = 3, 3, 3 })
		r.until("all are ready", func() bool { return r.describe("fn").Ready == 3 })
		r.mu.Lock()
		defer r.mu.Unlock()
		own := int64(0)
		for _, in := range r.functions[full("fn")].Instances {
			held := in.Config.Resources
			if own = held.Own(); held.Mapped.Bytes != weights || own < leastOwnOfTest {
				t.Errorf("an instance holds %+v", held)
			}
		}
		n := r.nodes[0]
		n.Others.Memory = 1 << 20
		r.nodes = []cluster.Node{n}
		r.keeper.Free(r.nodes)
		if used, want := r.nodes[0].Total.Memory-r.nodes[0].Free.Memory, 3*own+weights+(1<<20); used != want {
			t.Errorf("%d bytes are used, want %d", used, want)
		}
		got := r.fleetSize.nodes([]scaling.Function{{Name: full("fn")}}, r.nodes)
		sum := got[0].Others.Memory
		for _, in := range got[0].Instances {
			sum += in.Holds.Memory
		}
		if got[0].Others.Memory != 1<<20 || sum != 3*own+weights+(1<<20) {
			t.Errorf("%+v, want others with 1 MiB and all with %d", got[0], 3*own+weights+(1<<20))
		}
		if v := r.functions[full("fn")].variant(r.functions[full("fn")].artefacts[0]); v.Holds.Memory != 3*own+weights {
			t.Errorf("the variant holds %d bytes", v.Holds.Memory)
		}
	})
}

// leastOwnOfTest is the least memory in bytes that an instance has to itself.
const leastOwnOfTest = 128 << 20

// What an instance holds is its function's, the rest is held by others.
func TestFleetNodes(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "plain", wholeCore)
		r.answered("fn", "plain")
		r.mu.Lock()
		defer r.mu.Unlock()
		r.nodes = []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, Memory: 64 << 30}, Others: cluster.Resources{CPU: 500}}, {Name: "n2", Total: cluster.Resources{CPU: 1000}, Free: cluster.Resources{CPU: 1000}}}
		r.keeper.Free(r.nodes)
		got := r.fleetSize.nodes([]scaling.Function{{Name: full("fn"), Nodes: []string{"n1"}}}, r.nodes)
		if len(got) != 2 || got[0].Others != (cluster.Resources{CPU: 500}) || len(got[0].Instances) != 1 || got[0].Instances[0].Holds.CPU != 1000 || got[0].Instances[0].Nodes[0] != "n1" {
			t.Errorf("%+v", got)
		}
		if got[1].Others != (cluster.Resources{}) || len(got[1].Instances) != 0 {
			t.Errorf("%+v", got[1])
		}
		// The members of a set hold their shares on their own nodes.
		for _, in := range r.functions[full("fn")].Instances {
			in.Nodes = []string{"n1", "n2"}
			if !(&fleetSize{drain: []string{"n2"}}).leaves(in) {
				t.Error("a set with a member on a node that is to go stays")
			}
		}
		r.keeper.Free(r.nodes)
		got = r.fleetSize.nodes([]scaling.Function{{Name: full("fn")}}, r.nodes)
		for i, free := range []int{3000, 500} {
			if r.nodes[i].Free.CPU != free || len(got[i].Instances) != 1 || got[i].Instances[0].Holds.CPU != 500 || got[i].Others.CPU != 500-500*i {
				t.Errorf("%+v, free %+v", got[i], r.nodes[i].Free)
			}
		}
		if held := r.functions[full("fn")].heldOn(); len(held["n1"]) != 1 || held["n1"][0].CPU != 500 || held["n2"][0].CPU != 500 {
			t.Errorf("held %+v", held)
		}
	})
}
