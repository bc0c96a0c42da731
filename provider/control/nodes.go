package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/nodes"
	"github.com/faas-infer/faas-infer/variant"
)

// nodesPeriod is the time between two decisions about the number of nodes, as in INFaaS (§5).
const nodesPeriod = 2 * time.Second

// fleetSize asks how many nodes there should be, and passes the answer on.
type fleetSize struct {
	functions map[string]*function
	metrics   *metrics.Metrics
	// notify is Options.NodesWanted.
	notify    func([]nodes.Wanted)
	decisions *decisions.Log
	// scaler is nil while another replica leads.
	scaler *nodes.Scaler
	at     time.Time
	// wanted are those of the latest decision, nil before it.
	wanted []nodes.Wanted
	// drain are the nodes that are to go. Without Options.NodesWanted there are none.
	drain []string
}

// look decides if it is time. It forgets everything while another replica leads: the metric must
// have one source. The lock is held.
func (s *fleetSize) look(now time.Time, leading bool, functions []scaling.Function, all []cluster.Node) {
	switch {
	case !leading && s.scaler != nil:
		s.scaler, s.drain, s.wanted = nil, nil, nil
		s.metrics.HideNodesWanted()
		s.tell(nil)
		return
	case !leading || now.Sub(s.at) < nodesPeriod:
		return
	case s.scaler == nil:
		s.scaler = nodes.New(nodes.Default())
	}
	s.at = now
	wanted := s.scaler.Look(now, s.nodes(functions, all))
	for _, w := range wanted {
		s.metrics.SetNodesWanted(string(w.Kind), w.Count)
	}
	decidedNodes(s.decisions, now, s.wanted, wanted)
	s.wanted = wanted
	s.tell(wanted)
}

// tell tells the platform which nodes are wanted, nil while another replica decides. If it listens,
// nodes are drained, too.
func (s *fleetSize) tell(wanted []nodes.Wanted) {
	if s.notify == nil {
		return
	}
	s.notify(wanted)
	s.drain = s.drain[:0]
	for _, w := range wanted {
		if w.Drain != "" {
			s.drain = append(s.drain, w.Drain)
		}
	}
}

// leaves reports whether an instance must start again elsewhere, because a node of it is to go.
func (s *fleetSize) leaves(in *instance) bool {
	return slices.ContainsFunc(s.drain, func(node string) bool { return node == in.Node || slices.Contains(in.Nodes, node) })
}

// staying returns the nodes that stay of the allowed ones (nil for all). It returns allowed itself
// if none would be left.
func (s *fleetSize) staying(allowed []string, all []cluster.Node) []string {
	if len(s.drain) == 0 {
		return allowed
	}
	return without(allowed, all, func(name string) bool { return slices.Contains(s.drain, name) })
}

// nodes returns all nodes as their number depends on them. What none of the functions holds
// counts as held by others. The lock is held.
func (s *fleetSize) nodes(functions []scaling.Function, present []cluster.Node) []nodes.Node {
	all := make([]nodes.Node, 0, len(present))
	at := make(map[string]*nodes.Node, len(present))
	var sum cluster.Sum // The first instance of a node that maps a file counts it.
	for _, n := range present {
		all = append(all, nodes.Node{Name: n.Name, Total: n.Total, Others: n.Total.Sub(n.Free)})
		at[n.Name] = &all[len(all)-1]
	}
	for _, f := range functions {
		for _, in := range s.functions[f.Name].Instances {
			for node, held := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
				n, ok := at[node]
				if !ok {
					continue
				}
				held = sum.Hold(node, held)
				n.Others = n.Others.Sub(held)
				if held != (cluster.Resources{}) {
					n.Instances = append(n.Instances, nodes.Instance{Holds: held, Nodes: f.Nodes})
				}
				n.Overloaded = n.Overloaded || in.follower.State() == variant.Overloaded
				n.Interfered = n.Interfered || in.follower.State() == variant.Interfered
			}
		}
	}
	return all
}
