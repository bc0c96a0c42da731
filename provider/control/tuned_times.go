package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// corrected gives a tuner a function's present times: their means and their
// spread. The lock is held during its methods.
type corrected struct {
	*function
	of *artefact
}

// Configs implements systems.Times.
func (t corrected) Configs() []cluster.Config {
	var all []cluster.Config
	for _, c := range t.of.candidates {
		all = append(all, c.Config)
	}
	return all
}

// Exec implements systems.Times. It returns the mean of the observed executions. Without any,
// it divides the promised percentile by the ratio of percentile to mean at other configs.
func (t corrected) Exec(c cluster.Config, b int) (time.Duration, bool) {
	table := t.of.table(t.of.lead, c.Batch, capacity.ShareOf(c))
	if b < 1 || b > len(table) {
		return 0, false
	}
	if mean := t.of.lead.means.Of(t.of.lead.times.Profile(), capacity.ShareOf(c), b, table[b-1]); mean > 0 {
		return mean, true
	}
	return time.Duration(float64(table[b-1]) / systems.Tail(latency.Quantile(t.Function), t.Spread())), true
}

// Spread implements systems.Times. It returns the observed spread. With too few executions
// it returns 0: then all executions count as long as the percentile.
func (t corrected) Spread() float64 {
	return t.of.lead.means.Spread(t.of.lead.times.Profile(), latency.Quantile(t.Function), func(on profiler.Share) []time.Duration {
		return t.of.table(t.of.lead, t.Inference.MaxBatch, on)
	})
}

// room returns a function that says how many instances with given resources fn may have. It
// counts the free resources of eligible nodes and those that fn's instances hold, and stops
// at the deployment's maximum. The lock is held when the result is called.
func (fn *function) room(f *scaling.Function, nodes []cluster.Node) systems.Room {
	var room systems.Room
	return func(r cluster.Resources) int {
		if room == nil {
			room = systems.RoomOn(eligible(nodes, f.Nodes), f.Tenant, fn.heldOn)
		}
		if n := room(r); f.Max == 0 || n < f.Max {
			return n
		}
		return f.Max
	}
}

// eligible returns the nodes with the given names, all if names is nil.
func eligible(nodes []cluster.Node, names []string) []cluster.Node {
	if names == nil {
		return nodes
	}
	fit := make(map[string]bool, len(names))
	for _, n := range names {
		fit[n] = true
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n cluster.Node) bool { return !fit[n.Name] })
}

// heldOn returns the resources that the function's instances hold, by node.
func (fn *function) heldOn() map[string][]systems.Held {
	held := map[string][]systems.Held{}
	for _, in := range fn.Instances {
		for node, part := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
			held[node] = append(held[node], systems.Held{Resources: part, Device: in.Device()})
		}
	}
	return held
}
