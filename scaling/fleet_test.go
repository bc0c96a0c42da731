package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// crowdedFleet has 2,000 nodes. All functions but one have about 10,000 instances together, which
// take a multiple of exec for a batch. The first function has one instance and that many waiting requests.
func crowdedFleet(functions, waiting int, exec time.Duration) ([]Function, []cluster.Node) {
	const nodes, instances = 2000, 10_000
	each := max(1, instances/(functions-1))
	var configs []capacity.Candidate
	for _, cpu := range []int{250, 500, 1000, 2000} {
		for batch := 1; batch <= 8; batch *= 2 {
			exec := exec * time.Duration(batch+1)
			switch cpu {
			case 250, 500:
				exec = exec * 1000 / time.Duration(cpu)
			case 2000:
				exec = exec * 10 / 18
			}
			configs = append(configs, capacity.Candidate{Config: cluster.Config{Batch: batch, Resources: cluster.Resources{CPU: cpu, Memory: 256 << 20}}, Exec: exec})
		}
	}
	var at []cluster.Node
	for i := range nodes {
		whole := cluster.Resources{CPU: 8000, Memory: 32 << 30}
		at = append(at, cluster.Node{Name: fmt.Sprintf("kwok-%04d", i), Total: whole, Free: whole})
	}
	var all []Function
	n := 0
	for i := range functions {
		f := Function{Name: fmt.Sprintf("f%02d", i), Revision: 1, SLO: 2 * time.Second, Percentile: 99, Queue: capacity.LateBound, Configs: configs, ScaleToZero: true}
		if f.Min = each; i == 0 {
			f.Min, f.Waiting = 1, waiting
		}
		c := configs[2*4] // A core, one request at a time.
		for range f.Min {
			in := Running{ID: cluster.InstanceID(fmt.Sprintf("i%06d", n)), Node: at[n%nodes].Name, Config: c.Config, Exec: c.Exec, Revision: 1, State: cluster.Ready, IdleSince: time.Unix(1, 0)}
			if i == 0 && waiting > 0 {
				in.IdleSince = time.Time{}
			}
			at[n%nodes].Free = at[n%nodes].Free.Sub(c.Config.Resources)
			f.Instances = append(f.Instances, in)
			n++
		}
		all = append(all, f)
	}
	return all, at
}

// Functions whose constraints are the same share their list of nodes, and a pass looks each of its
// nodes up once: it takes no memory for the second function.
func TestListsOfNodesAreSharedByFunctions(t *testing.T) {
	functions, nodes := crowdedFleet(3, 0, time.Second)
	var list []string
	for _, n := range nodes[:100] {
		list = append(list, n.Name)
	}
	functions[0].Nodes, functions[1].Nodes, functions[2].Nodes = list, list, list[:50]
	e := New(DefaultSettings())
	p := &pass{engine: e, now: time.Unix(1, 0), nodes: nodes}
	views := e.observe(p.now, functions)
	p.allowed(views[0])
	if n := testing.AllocsPerRun(10, func() {
		views[1].allowed = placing.Allowed{}
		p.allowed(views[1])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i, want := range []int{100, 100, 50} {
		a := p.allowed(views[i])
		got := 0
		for k := range nodes {
			if a.Has(k) {
				got++
			}
		}
		if got != want {
			t.Errorf("function %d may use %d nodes, want %d", i, got, want)
		}
	}
}

// The benchmark plans for 10,000 instances on 2,000 nodes: without changes, and when
// the load of one function jumps.
func BenchmarkFleet(b *testing.B) {
	for _, functions := range []int{40, 10_000} {
		for name, waiting := range map[string]int{"steady": 0, "step": 400} {
			for _, exec := range []time.Duration{2 * time.Millisecond, 200 * time.Millisecond} {
				b.Run(fmt.Sprint(name, functions, exec), func(b *testing.B) {
					functions, nodes := crowdedFleet(functions, waiting, exec)
					b.ReportAllocs()
					starts := 0
					for b.Loop() {
						e := New(DefaultSettings()) // Nothing is remembered, as at the first such load.
						starts = len(e.Scale(time.Unix(100, 0), functions, nodes).Start)
					}
					b.ReportMetric(float64(starts), "starts")
				})
			}
		}
	}
}
