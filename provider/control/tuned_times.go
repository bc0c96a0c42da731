package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// corrected are a function's times as they are now, as BATCH's optimiser wants them: the
// means, and how they spread. The lock is held when they are asked for.
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

// Exec implements systems.Times: the mean of what instances take; where none has shown
// it, the promised percentile less what that has above the mean elsewhere.
func (t corrected) Exec(c cluster.Config, b int) (time.Duration, bool) {
	table := t.of.table(c.Batch, c.CPU)
	if b < 1 || b > len(table) {
		return 0, false
	}
	if mean := t.of.means.Of(t.of.times.Profile(), c.CPU, b, table[b-1]); mean > 0 {
		return mean, true
	}
	return time.Duration(float64(table[b-1]) / systems.Tail(latency.Quantile(t.Function), t.Spread())), true
}

// Spread implements systems.Times: what instances have shown; 0 where that is not enough,
// so that all executions are taken to be as long as the percentile.
func (t corrected) Spread() float64 {
	return t.of.means.Spread(t.of.times.Profile(), latency.Quantile(t.Function), func(millicores int) []time.Duration {
		return t.of.table(t.Inference.MaxBatch, millicores)
	})
}

// room is how many instances with some resources a function may have: on the nodes
// that are fit for it, with what its own hold now, and no more than its deployment
// allows. The lock is held when it is asked.
func (fn *function) room(f *scaling.Function, nodes []cluster.Node) systems.Room {
	var room systems.Room
	return func(r cluster.Resources) int {
		if room == nil {
			room = systems.RoomOn(eligible(nodes, f.Nodes), fn.heldOn)
		}
		if n := room(r); f.Max == 0 || n < f.Max {
			return n
		}
		return f.Max
	}
}

// eligible are the nodes with the given names, all if there is no list of names.
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

// heldOn is what the function's instances hold, by node.
func (fn *function) heldOn() map[string]cluster.Resources {
	held := map[string]cluster.Resources{}
	for _, in := range fn.Instances {
		held[in.Node] = held[in.Node].Add(in.Holds())
	}
	return held
}
