package nodes

import (
	"cmp"
	"slices"
	"time"

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

// release decides whether a node of the kind is drained: its instances have fitted elsewhere for
// Settings.Rest, nothing speaks for another node, and fewer nodes were not too few for this load
// before. The node with the least of its CPU held goes first. busy says that a node of any kind is
// being drained: until that has gone, nobody knows where its instances are.
func (m *memory) release(now time.Time, s Settings, k Kind, all []Node, busy bool) {
	if m.floor > 0 && load(all, k) < s.Same*m.load {
		m.floor, m.load = 0, 0
	}
	if busy {
		clear(m.fits)
		return
	}
	var ready []Node
	present := 0
	fits := map[string]time.Time{}
	for _, n := range all {
		if KindOf(n.Total) != k {
			continue
		}
		if present++; !s.spare(n, all) {
			continue
		}
		since, known := m.fits[n.Name]
		if !known {
			since = now
		}
		if fits[n.Name] = since; now.Sub(since) >= s.Rest {
			ready = append(ready, n)
		}
	}
	m.fits = fits
	if len(ready) == 0 || m.asked > 0 || !m.since.IsZero() || present <= m.floor {
		return
	}
	m.drain = slices.MinFunc(ready, func(a, b Node) int {
		return cmp.Or(cmp.Compare(float64(a.held().CPU)*float64(b.Total.CPU), float64(b.held().CPU)*float64(a.Total.CPU)), cmp.Compare(a.Name, b.Name))
	}).Name
}

// spare reports whether all can do without a node: its instances fit on the others, and these then
// hold at most Settings.Low of each resource together.
//
// For example, instances hold 1, 1 and 3 cores of three nodes with 4 cores each. Without the first
// there are 5 of 8 cores held, 62.5 %, and 1 core fits on the second: it is spare. However the
// instances are placed then, a node has at most 62.5 %, so rule 1 cannot hold. Without the third,
// 3 cores fit on the first, which has 3 left. With 1, 2 and 3 cores none is spare: 6 of 8 is 75 %.
func (s Settings) spare(n Node, all []Node) bool {
	if n.Others != (cluster.Resources{}) || n.Overloaded || n.Interfered {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(all), func(o Node) bool { return o.Name == n.Name })
	if len(others) == 0 || slices.ContainsFunc(others, func(o Node) bool { return o.Overloaded || o.Interfered }) {
		return false
	}
	for _, r := range resources {
		total, held := 0.0, r.of(n.held())
		for _, o := range others {
			total, held = total+r.of(o.Total), held+r.of(o.held())
		}
		if held > s.Low*total {
			return false
		}
	}
	return fit(n.Instances, others)
}

// fit reports whether instances fit into what is free on nodes: the largest first, each on the
// first node that has room.
func fit(instances []Instance, nodes []Node) bool {
	free := make([]cluster.Resources, len(nodes))
	for i, n := range nodes {
		free[i] = n.Total.Sub(n.held())
	}
	sorted := slices.SortedStableFunc(slices.Values(instances), func(a, b Instance) int { return cmp.Compare(b.Holds.CPU, a.Holds.CPU) })
	for _, in := range sorted {
		at := -1
		for i := range nodes {
			if in.Holds.Fits(free[i]) && (in.Nodes == nil || slices.Contains(in.Nodes, nodes[i].Name)) {
				at = i
				break
			}
		}
		if at < 0 {
			return false
		}
		free[at] = free[at].Sub(in.Holds)
	}
	return true
}
