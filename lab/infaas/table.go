package infaas

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// Table answers queries over the variants of an application (Algorithm 1). It does not change;
// make a new one when variants or states do. Many may read it at once.
type Table struct {
	rows   []registration.Placed
	all    *group
	models map[string]*group
}

// group is an index of some rows: of all, or of those of one model.
type group struct {
	// active, inactive and troubled, in the order in which Algorithm 1 asks them.
	classes [3]index
}

// NewTable returns the table of variants. They must be valid: see [variant.Variant.Check].
func NewTable(rows []registration.Placed) *Table {
	t := &Table{rows: slices.Clone(rows), models: map[string]*group{}}
	all := make([]int32, len(rows))
	of := map[string][]int32{}
	for i := range rows {
		all[i] = int32(i)
		of[rows[i].Model] = append(of[rows[i].Model], int32(i))
	}
	t.all = t.group(all)
	for model, members := range of {
		t.models[model] = t.group(members)
	}
	return t
}

// group indexes some rows.
func (t *Table) group(members []int32) *group {
	g := &group{}
	var of [3][]int32
	for _, i := range members {
		class := 2
		switch t.rows[i].State {
		case variant.Active:
			class = 0
		case variant.Inactive:
			class = 1
		}
		of[class] = append(of[class], i)
	}
	for class, order := range []func(a, b *registration.Placed) int{byCost, byReady, byCost} {
		g.classes[class] = t.index(of[class], order)
	}
	return g
}

// byCost is the order in which loaded variants are taken: the cheapest per request, then the
// fastest, then by name.
func byCost(a, b *registration.Placed) int {
	return cmp.Or(cmp.Compare(a.PerRequest(), b.PerRequest()), cmp.Compare(a.Latency, b.Latency), byName(a, b))
}

// byReady is the order in which inactive variants are taken: the soonest answer, then as the
// loaded ones.
func byReady(a, b *registration.Placed) int {
	return cmp.Or(cmp.Compare(a.Load+a.Latency, b.Load+b.Latency), byCost(a, b))
}

func byName(a, b *registration.Placed) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Model, b.Model), strings.Compare(a.Hardware, b.Hardware))
}

// sort orders rows; equal ones stay in the order of the table.
func (t *Table) sort(members []int32, order func(a, b *registration.Placed) int) {
	slices.SortFunc(members, func(a, b int32) int {
		return cmp.Or(order(&t.rows[a], &t.rows[b]), cmp.Compare(a, b))
	})
}

// Get is getVariant of Algorithm 1: it returns the row that answers a query. Active variants
// come first, the cheapest per request. Otherwise an inactive one is loaded: the one with the
// least loading and inference time. If all that meet the query are Overloaded or Interfered,
// it is one of these. It returns false if none meets the query.
func (t *Table) Get(q variant.Query) (row int, ok bool) {
	g := t.all
	if q.Model != "" {
		if g = t.models[q.Model]; g == nil {
			return 0, false
		}
	}
	for class := range g.classes {
		if i := g.classes[class].first(q); i >= 0 {
			return int(i), true
		}
	}
	return 0, false
}

// index finds the first row, in a fixed order, of those that are fast and accurate enough. The
// rows are sorted by latency, so the fast ones are a prefix. As in a Fenwick tree, a prefix
// consists of at most log n blocks. Each block has its rows by accuracy, with the first row of
// all that are at least as accurate. A query takes two binary searches in each block.
type index struct {
	latencies []int64
	// blocks[k] ends with the k-th row by latency and has as many rows as k's lowest bit
	// says.
	blocks [][]step
	order  []int32 // the rows in the fixed order
}

// step is a row's accuracy, and the first row in the fixed order, by its place there, of all
// in its block that are at least as accurate.
type step struct {
	accuracy float64
	first    int32
}

// index indexes some rows for an order.
func (t *Table) index(members []int32, order func(a, b *registration.Placed) int) index {
	x := index{order: slices.Clone(members)}
	t.sort(x.order, order)
	places := make([]int32, len(members))
	for p := range places {
		places[p] = int32(p)
	}
	row := func(place int32) *registration.Placed { return &t.rows[x.order[place]] }
	slices.SortStableFunc(places, func(a, b int32) int { return cmp.Compare(row(a).Latency, row(b).Latency) })
	x.blocks = make([][]step, len(places)+1)
	for k := 1; k <= len(places); k++ {
		x.latencies = append(x.latencies, int64(row(places[k-1]).Latency))
		block := make([]step, 0, k&-k)
		for _, p := range places[k-k&-k : k] {
			block = append(block, step{row(p).Accuracy, p})
		}
		x.blocks[k] = narrowed(block)
	}
	return x
}

// narrowed sorts a block by accuracy and leaves out rows that come later in the order than a
// row that is as accurate.
func narrowed(block []step) []step {
	slices.SortFunc(block, func(a, b step) int {
		return cmp.Or(cmp.Compare(b.accuracy, a.accuracy), cmp.Compare(a.first, b.first))
	})
	kept := block[:0]
	for _, s := range block {
		if n := len(kept); n == 0 || s.first < kept[n-1].first {
			kept = append(kept, s)
		}
	}
	return slices.Clip(kept)
}

// first returns the first row that meets a query, or -1. It does not ask for the model.
func (x *index) first(q variant.Query) int32 {
	k := len(x.latencies)
	if q.Latency > 0 {
		k = sort.Search(k, func(i int) bool { return x.latencies[i] > int64(q.Latency) })
	}
	best := int32(len(x.order))
	for ; k > 0; k -= k & -k {
		block := x.blocks[k]
		// The last step that is accurate enough has the first row of all that are.
		n := sort.Search(len(block), func(i int) bool { return !(block[i].accuracy >= q.Accuracy) })
		if n > 0 {
			best = min(best, block[n-1].first)
		}
	}
	if int(best) == len(x.order) {
		return -1
	}
	return x.order[best]
}
