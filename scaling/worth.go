package scaling

import (
	"github.com/faas-infer/faas-infer/cluster"
)

// appraise updates what v's idle instances are worth. node returns a node by its name.
func appraise(v *view, node func(string) *cluster.Node) {
	m := v.memory
	if len(m.worths) > 2*len(v.Instances) { // Most are of instances that are gone.
		there := make(map[cluster.InstanceID]worth, len(v.Instances))
		for i := range v.Instances {
			if w, ok := m.worths[v.Instances[i].ID]; ok {
				there[v.Instances[i].ID] = w
			}
		}
		m.worths = there
	}
	for i := range v.Instances {
		in := &v.Instances[i]
		w := m.worths[in.ID]
		if in.IdleSince.IsZero() || in.IdleSince.Equal(w.since) {
			continue
		}
		if m.worths == nil {
			m.worths = map[cluster.InstanceID]worth{}
		}
		w.since, w.uses = in.IdleSince, w.uses+1
		w.value = v.engine.clock + float64(w.uses)*in.Loading.Seconds()/size(in, node)
		m.worths[in.ID] = w
	}
}

// size is the largest part of a resource of a node that would be free without the instance.
func size(in *Running, node func(string) *cluster.Node) (most float64) {
	const least = 1e-3
	most = least
	part := func(held, total float64) float64 { return held / max(1, total) }
	for name, held := range onNodes(in) {
		if n := node(name); n != nil {
			most = max(most, part(float64(held.CPU), float64(n.Total.CPU)), part(float64(n.Frees(held)), float64(n.Total.Memory)), part(float64(held.GPU), float64(n.Total.GPU)))
		}
	}
	return most
}

// byName returns a function that finds a node by its name; nil if there is none.
func byName(nodes []cluster.Node) func(name string) *cluster.Node {
	var at map[string]int // Most passes need none.
	return func(name string) *cluster.Node {
		if at == nil {
			at = make(map[string]int, len(nodes))
			for i := range nodes {
				at[nodes[i].Name] = i
			}
		}
		if i, ok := at[name]; ok {
			return &nodes[i]
		}
		return nil
	}
}
