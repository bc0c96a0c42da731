package scaling

import (
	"iter"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// onNodes lists the nodes of an instance, each once, and what it holds there.
func onNodes(in *Running) iter.Seq2[string, cluster.Resources] {
	return func(yield func(string, cluster.Resources) bool) {
		if in.Nodes == nil {
			yield(in.Node, in.Holds())
			return
		}
		sums, order := map[string]cluster.Resources{}, []string(nil)
		for node, part := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
			if _, known := sums[node]; !known {
				order = append(order, node)
			}
			sums[node] = sums[node].Add(part)
		}
		for _, node := range order {
			if !yield(node, sums[node]) {
				return
			}
		}
	}
}

// give returns to a room what an instance that is about to stop holds, on each of its nodes. It
// reports whether all of them are there.
func give(room *placing.Room, in *Running) (all bool) {
	all = true
	for node, held := range onNodes(in) {
		if i, ok := room.Find(node); ok {
			room.Give(i, held, in.Device, in.ID)
		} else {
			all = false
		}
	}
	return all
}
