package nodes

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// rule is a reason to add a node (§4.2.3).
type rule int

const (
	none rule = iota
	// full is rule 1: a resource is nearly used up on all nodes.
	full
	// interfered is rule 2: something interferes with instances on all nodes of a kind.
	interfered
	// overloaded is rule 3: most nodes have overloaded instances.
	overloaded
)

// why is the rule in words.
func (r rule) why() string {
	switch r {
	case full:
		return "a resource is nearly used up on all nodes"
	case interfered:
		return "something interferes with instances on all nodes"
	case overloaded:
		return "most nodes have overloaded instances"
	case none:
	}
	return ""
}

// resource is one of the resources of a node.
type resource struct {
	of func(cluster.Resources) float64
	// on is the kind of node that is added if there is too little of it.
	on Kind
}

var resources = []resource{
	{func(r cluster.Resources) float64 { return float64(r.CPU) }, CPU},
	{func(r cluster.Resources) float64 { return float64(r.Memory) }, CPU},
	{func(r cluster.Resources) float64 { return float64(r.GPU) }, GPU},
	{func(r cluster.Resources) float64 { return float64(r.GPUMemory) }, GPU},
}

// holding returns the rule that holds for each kind.
//
// Rule 1: of two nodes with 4 cores each, instances hold 3.3 and 3.5. Both parts, 82.5 and
// 87.5 %, are above 80 %, so a node with CPU is wanted. With 3.1 (77.5 %) and 4 (100 %) none is:
// the next instance fits on the first. The paper compares what is used. Here an instance gets what
// it holds and no more, and another one fits only into what nobody holds.
//
// Rule 2: one of two GPU nodes has an Interfered instance: none is wanted, as the instance can go
// to the other. Both have: a GPU node is wanted.
//
// Rule 3: of 5 nodes, 4 have Overloaded instances: 80 % is not more than 80 %. All 5 have: a node is
// wanted, of the kind that most of them have. The paper does not say of which kind.
func (s Settings) holding(all []Node) map[Kind]rule {
	rules := map[Kind]rule{}
	if k := mostOverloaded(all, s.Most); k != "" {
		rules[k] = overloaded
	}
	for _, k := range Kinds {
		if every(all, k, func(n Node) bool { return n.Interfered }) {
			rules[k] = interfered
		}
	}
	for _, r := range resources {
		has := slices.DeleteFunc(slices.Clone(all), func(n Node) bool { return r.of(n.Total) <= 0 })
		isFull := func(n Node) bool { return r.of(n.held()) > s.Full*r.of(n.Total) }
		if len(has) > 0 && !slices.ContainsFunc(has, func(n Node) bool { return !isFull(n) }) {
			rules[r.kind(has)] = full
		}
	}
	return rules
}

// kind is the kind of node that gives more of the resource: the cheapest one among those that
// have it.
func (r resource) kind(has []Node) Kind {
	if slices.ContainsFunc(has, func(n Node) bool { return KindOf(n.Total) == r.on }) {
		return r.on
	}
	return KindOf(has[0].Total)
}

// every reports whether there are nodes of a kind and all of them are so.
func every(all []Node, k Kind, so func(Node) bool) bool {
	of := slices.DeleteFunc(slices.Clone(all), func(n Node) bool { return KindOf(n.Total) != k })
	return len(of) > 0 && !slices.ContainsFunc(of, func(n Node) bool { return !so(n) })
}

// mostOverloaded returns the kind of most overloaded nodes if more than a part of all nodes are,
// otherwise "".
func mostOverloaded(all []Node, part float64) (most Kind) {
	count, sum := map[Kind]int{}, 0
	for _, n := range all {
		if n.Overloaded {
			count[KindOf(n.Total)]++
			sum++
		}
	}
	if float64(sum) <= part*float64(len(all)) {
		return ""
	}
	for _, k := range Kinds {
		if most == "" || count[k] > count[most] {
			most = k
		}
	}
	return most
}

// load is what instances and others hold of the nodes of a kind: in cores and GPUs.
func load(all []Node, k Kind) (sum float64) {
	for _, n := range all {
		if KindOf(n.Total) == k {
			h := n.held()
			sum += float64(h.CPU)/1000 + float64(h.GPU)/100
		}
	}
	return sum
}
