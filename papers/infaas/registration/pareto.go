package registration

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/variant"
)

// Placed is a variant on one node, or an inactive one.
type Placed struct {
	variant.Variant
	State variant.State
}

// Dominators returns, for each variant, the index of one that is at least as accurate, as fast
// and as cheap per request, and better in one of them; -1 if there is none. A dominated
// variant need not be registered. One that is loaded still serves: a table does not ask who
// dominates it. For few requests it may be the cheapest too, as an instance of a cheap device
// costs less than a share of a fast one: plans therefore keep it.
func Dominators(vs []Placed) []int {
	order := make([]int, len(vs))
	by := make([]int, len(vs))
	for i := range order {
		order[i], by[i] = i, -1
	}
	slices.SortStableFunc(order, func(a, b int) int { return better(&vs[a].Variant, &vs[b].Variant) })
	// steps are the best so far by latency: each next one is slower and cheaper.
	var steps []int
	for n, i := range order {
		v := &vs[i].Variant
		if n > 0 && better(&vs[order[n-1]].Variant, v) == 0 {
			by[i] = by[order[n-1]]
			continue
		}
		at, _ := slices.BinarySearchFunc(steps, v.Latency, func(s int, t time.Duration) int {
			if vs[s].Latency <= t {
				return -1
			}
			return 1
		})
		if at > 0 && vs[steps[at-1]].PerRequest() <= v.PerRequest() {
			by[i] = steps[at-1]
			continue
		}
		// v is cheaper than all that are as fast. It replaces those that it equals in
		// latency or that are slower and not cheaper.
		from := at
		if at > 0 && vs[steps[at-1]].Latency == v.Latency {
			from--
		}
		to := at
		for to < len(steps) && vs[steps[to]].PerRequest() >= v.PerRequest() {
			to++
		}
		steps = slices.Replace(steps, from, to, i)
	}
	return by
}

// better orders variants so that none comes after one that it dominates.
func better(a, b *variant.Variant) int {
	return cmp.Or(cmp.Compare(b.Accuracy, a.Accuracy), cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.PerRequest(), b.PerRequest()))
}
