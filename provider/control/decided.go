package control

import (
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/nodes"
)

// This file adds to the log of decisions what the controller does, with the engine's reasons. Of several replicas
// only the leader decides.

// decided adds a decision about a function. The lock is held.
func decided(fn *function, now time.Time, kind decisions.Kind, f decisions.Fields) {
	if fn.replica.Led() {
		fn.decisions.Add(now, fn.Name, kind, f)
	}
}

// about returns the fields of a decision about an instance.
func about(in *instance, r scaling.Reason) decisions.Fields {
	f := decisions.Fields{Instances: 1, Instance: string(in.ID), Shadow: in.Role == cluster.Shadow}
	f.OfConfig(in.Config)
	f.Because(r)
	if f.Node = in.Node; in.Nodes != nil {
		f.Node = strings.Join(slices.Compact(slices.Sorted(slices.Values(in.Nodes))), " and ")
	}
	if in.Artefact.Name != onlyModel {
		f.Variant = in.Artefact.Name
	}
	return f
}

// failed returns the fields of a decision that could not be carried out.
func failed(f decisions.Fields, err error) decisions.Fields {
	if err != nil {
		f.Error = web.Conceal(err.Error())
	}
	return f
}

// decidedNodes adds a new number of nodes that are wanted, and why.
func decidedNodes(l *decisions.Log, now time.Time, before, wanted []nodes.Wanted) {
	for _, w := range wanted {
		same := func(x nodes.Wanted) bool { return x.Kind == w.Kind && x.Count == w.Count }
		if slices.ContainsFunc(before, same) || before == nil && w.Count == w.Present {
			continue
		}
		l.Add(now, "", decisions.Node, decisions.Fields{Wanted: w.Count, Present: w.Present, Why: w.Why})
	}
}
