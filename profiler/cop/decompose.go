package cop

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Structure is the kind of a part of a graph.
type Structure uint8

const (
	// Node is one node.
	Node Structure = iota
	// Chain is a sequence of parts. Each part waits for all of the one before.
	Chain
	// Branches are parts that do not wait for each other.
	Branches
	// Knot is a set of nodes that is not a nesting of chains and branches, for
	// example a to c, a to d and b to d.
	Knot
)

// Tree is a graph decomposed into INFless §3.3's two structures, the sequence chain and
// the parallel branches.
type Tree struct {
	Structure Structure
	// Parts are the parts of a chain, in order, or of branches.
	Parts []*Tree
	// Nodes are the indices in Graph.Nodes of all nodes within, ascending.
	Nodes []int
	graph *operator.Graph
	after []set
}

// Decompose decomposes a graph. It follows which nodes must wait for which, not the edges:
// the sum of a residual block also reads the block's input, and that changes nothing.
// Every graph can be decomposed, down to knots. The tree of a graph without nodes is nil.
// Time and memory grow with the square of the number of nodes.
func Decompose(g *operator.Graph) *Tree {
	if len(g.Nodes) == 0 {
		return nil
	}
	t := &Tree{graph: g, after: followers(g), Nodes: make([]int, len(g.Nodes))}
	for i := range t.Nodes {
		t.Nodes[i] = i
	}
	t.split()
	return t
}

// set is a set of nodes.
type set []uint64

func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s set) put(i int)      { s[i/64] |= 1 << (i % 64) }

func (s set) union(t set) {
	for i := range s {
		s[i] |= t[i]
	}
}

// followers are for each node the nodes that must wait for it.
func followers(g *operator.Graph) []set {
	n := len(g.Nodes)
	words := (n + 63) / 64
	slab := make([]uint64, n*words)
	all := make([]set, n)
	for i := range all {
		all[i] = slab[i*words : (i+1)*words]
	}
	for i := n - 1; i >= 0; i-- {
		for _, in := range g.Nodes[i].Inputs {
			all[in].put(i)
			all[in].union(all[i])
		}
	}
	return all
}

// split decomposes t's nodes.
func (t *Tree) split() {
	if len(t.Nodes) == 1 {
		return
	}
	t.Structure = Chain
	parts := t.links()
	if len(parts) == 1 {
		t.Structure = Branches
		parts = t.branches()
	}
	if len(parts) == 1 {
		t.Structure = Knot
		return
	}
	for _, nodes := range parts {
		part := &Tree{graph: t.graph, after: t.after, Nodes: nodes}
		part.split()
		t.Parts = append(t.Parts, part)
	}
}

// links cuts the nodes, which are in an order of execution, wherever all nodes after the
// cut wait for all nodes before it.
func (t *Tree) links() (parts [][]int) {
	start, reach := 0, 0
	for k, node := range t.Nodes {
		if k > reach {
			parts, start = append(parts, t.Nodes[start:k:k]), k
		}
		reach = max(reach, k, t.lastFree(node, k))
	}
	return append(parts, t.Nodes[start:])
}

// lastFree is the last position after k whose node does not wait for node, or k if there
// is none.
func (t *Tree) lastFree(node, k int) int {
	for j := len(t.Nodes) - 1; j > k; j-- {
		if !t.after[node].has(t.Nodes[j]) {
			return j
		}
	}
	return k
}

// branches are the groups of nodes without an order between them.
func (t *Tree) branches() (parts [][]int) {
	words := len(t.after[0])
	slab := make(set, 2*words)
	free, found := slab[:words], slab[words:]
	for _, node := range t.Nodes {
		free.put(node)
	}
	for _, node := range t.Nodes {
		if !free.has(node) {
			continue
		}
		clear(found)
		t.spread(node, free, found)
		parts = append(parts, found.list())
	}
	return parts
}

// spread moves node and all nodes connected with it from free to found.
func (t *Tree) spread(node int, free, found set) {
	free[node/64] &^= 1 << (node % 64)
	found.put(node)
	queue := []int{node}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, other := range t.Nodes {
			if free.has(other) && (t.after[at].has(other) || t.after[other].has(at)) {
				free[other/64] &^= 1 << (other % 64)
				found.put(other)
				queue = append(queue, other)
			}
		}
	}
}

// list returns the members, ascending.
func (s set) list() (all []int) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			all = append(all, i*64+bits.TrailingZeros64(word))
		}
	}
	return all
}

// Time is the paper's rule: the sum over a chain, the maximum over branches, and the
// longest path through a knot. node returns the time of a node.
func (t *Tree) Time(node func(i int) float64) float64 {
	total := 0.0
	switch t.Structure {
	case Node:
		return node(t.Nodes[0])
	case Chain:
		for _, p := range t.Parts {
			total += p.Time(node)
		}
	case Branches:
		for _, p := range t.Parts {
			total = max(total, p.Time(node))
		}
	case Knot:
		ends := make(map[int]float64, len(t.Nodes))
		for k, i := range t.Nodes {
			start := 0.0
			for _, before := range t.Nodes[:k] {
				if t.after[before].has(i) {
					start = max(start, ends[before])
				}
			}
			ends[i] = start + node(i)
			total = max(total, ends[i])
		}
	}
	return total
}

// SeriesParallel reports whether there is no knot.
func (t *Tree) SeriesParallel() bool {
	return t.Structure != Knot && !slices.ContainsFunc(t.Parts, func(p *Tree) bool { return !p.SeriesParallel() })
}

// Print writes the tree, one line per part, with the nodes' names and operator types.
func (t *Tree) Print(w io.Writer) error {
	_, err := w.Write(t.appendText(nil, 0))
	return err
}

func (t *Tree) appendText(text []byte, depth int) []byte {
	text = append(text, strings.Repeat("  ", depth)...)
	describe := func(i int) string {
		n := t.graph.Nodes[i]
		return n.Name + " " + t.graph.Operators[n.Operator].Type
	}
	switch t.Structure {
	case Node:
		text = append(text, describe(t.Nodes[0])...)
	case Chain:
		text = fmt.Appendf(text, "chain of %d", len(t.Parts))
	case Branches:
		text = fmt.Appendf(text, "%d branches", len(t.Parts))
	case Knot:
		text = fmt.Appendf(text, "knot of %d", len(t.Nodes))
		for _, i := range t.Nodes {
			text = fmt.Appendf(append(text, '\n'), "%s%s", strings.Repeat("  ", depth+1), describe(i))
		}
	}
	text = append(text, '\n')
	for _, p := range t.Parts {
		text = p.appendText(text, depth+1)
	}
	return text
}
