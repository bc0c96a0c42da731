package placing

import (
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Algorithm 1 places only on the named nodes.
func TestScheduleOnNodes(t *testing.T) {
	nodes := []cluster.Node{node("a", 1000, 0, 8<<30), node("b", 8000, 0, 8<<30), node("c", 8000, 0, 8<<30)}
	for _, placing := range []capacity.Placing{capacity.BestFit, capacity.Spread} {
		o := capacity.Greedy()
		o.Placement = placing
		for _, queue := range []capacity.Queue{capacity.PerInstance, capacity.LateBound} {
			d := capacity.Demand{RPS: 300, SLO: 100 * ms, Queue: queue, Configs: []capacity.Candidate{config(1, 1000, 0, 10*ms)}, Nodes: []string{"nowhere", "c"}}
			p := Schedule(d, nodes, o)
			if len(p.Placed) != 3 || slices.ContainsFunc(p.Placed, func(x Placed) bool { return x.Node != "c" }) {
				t.Errorf("%v, %v: %+v", placing, queue, p)
			}
			if d.RPS = 1000; len(Schedule(d, nodes, o).Placed) != 8 || Schedule(d, nodes, o).Reason != NoRoom {
				t.Errorf("%v, %v: more than c has room for: %+v", placing, queue, Schedule(d, nodes, o))
			}
			for _, none := range [][]string{{}, {"nowhere"}} {
				d.Nodes = none
				if p := Schedule(d, nodes, o); len(p.Placed) > 0 || p.Reason != NoNode || p.Explain(d.SLO) != "there is no node on which the function may run" {
					t.Errorf("%v, %v: on %v: %+v", placing, queue, none, p)
				}
			}
		}
	}
}
