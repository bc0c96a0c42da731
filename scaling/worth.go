package scaling

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// worth is what an idle instance is worth by Greedy-Dual-Size-Frequency, as FaasCache
// (ASPLOS'21) keeps warm functions: the clock at its last use plus uses × loading time / size.
// The size is the largest part of its node's CPU, memory or GPUs that would be free without it. The instance
// that is worth least makes room first, and the clock goes on to its worth. So one that is
// dear to load stays longer than others, but not for ever.
//
// For example at clock 0 one that loads in 8 s and holds a tenth of its node is worth 80, after
// a second use 160. One that loads in 1 s on as much room is worth 10, and goes first; the
// clock is then 10. After eight such evictions, a new one of that kind is worth 90.
type worth struct {
	// since is when the instance became idle and uses how often it did.
	since time.Time
	uses  int
	value float64
}

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
