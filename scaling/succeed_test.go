package scaling

import (
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// exchanged is the plan that exchanges the only instances of functions on one node for others, from a CPU in millicores
// to another.
func exchanged(memory int64, from, to int, functions ...string) []Start {
	const each = 1 << 30
	w := newWorld(DefaultSettings())
	n := node("a", max(from, to)*len(functions), 0, memory)
	var all []Function
	for _, name := range functions {
		c := config(1, from, 0, 5*ms)
		c.Config.Memory = each
		all = append(all, Function{Name: name, Revision: 1, Rate: 1, Instances: []Running{{
			ID: cluster.InstanceID(name + "1"), Node: "a", Config: c.Config, Exec: c.Exec, Revision: 1, State: cluster.Ready,
		}}})
		n.Hold(c.Config.Resources, "")
	}
	p := &pass{engine: w.engine, now: epoch, nodes: []cluster.Node{n}}
	p.views = w.engine.observe(epoch, all)
	for _, v := range p.views {
		in := v.live[0]
		p.space().Give(0, in.Config.Resources, "", in.ID)
		p.stop(v, in, Rearranged)
	}
	for _, v := range p.views {
		c := config(1, to, 0, ms)
		c.Config.Memory = each
		p.space().Take(0, c.Config.Resources, v.Tenant)
		p.start(v, []placing.Placed{{Candidate: c, Node: "a"}}, Rearranged)
	}
	overlap(p)
	return p.plan.Start
}

// An only instance stays if the other may begin with less CPU and the node has memory for both.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		name     string
		memory   int64
		from, to int
		begins   []int
	}{
		{"a larger one", 8 << 30, 1000, 1750, []int{750}},
		{"a smaller one", 8 << 30, 1000, 500, []int{0}},
		{"one of the same size", 8 << 30, 1000, 1000, []int{0}},
		{"no memory for both", 1 << 30, 1000, 1750, []int{0}},
		{"two functions", 8 << 30, 500, 600, []int{100, 100}},
	} {
		for k, s := range exchanged(c.memory, c.from, c.to, []string{"f", "g"}[:len(c.begins)]...) {
			stays := cluster.InstanceID("")
			if c.begins[k] > 0 {
				stays = cluster.InstanceID(s.Function + "1")
			}
			if s.Succeeds != stays || s.Begins != c.begins[k] {
				t.Errorf("%s: %q stays, and %s begins with %dm", c.name, s.Succeeds, s.Function, s.Begins)
			}
		}
	}
}
