package infaas

import (
	"cmp"
	"math"
	"slices"
)

// item is a part of an option: its running instances, or those that must be loaded.
type item struct {
	option     int
	rate, cost float64
	// most is the maximum number of instances. ratio is cost/rate.
	most  int
	ratio float64
}

// cover is the knapsack of one application: the cheapest instances that together serve its
// load. The search is depth first. Items are in the order of their cost per request, so the
// rest of the load costs at least the next item's.
type cover struct {
	items []item
	need  float64
	size  int // of the counts
	// taken and best are counts by item. value is best's cost, +Inf if there is none.
	taken, best []int
	value       float64
	// work counts the steps, of which there may be limit.
	work, limit int
}

// coverWork is the maximum number of steps of a cover's search, some 20 ms.
const coverWork = 2_000_000

// newCover returns the knapsack of an application if its resources have prices.
func newCover(app *Application, lambda float64, prices []float64) *cover {
	c := wholeCover(app, lambda, prices)
	all := slices.Clone(c.items)
	c.items = slices.DeleteFunc(c.items, func(x item) bool {
		return slices.ContainsFunc(all, func(y item) bool { return dominated(x, y) })
	})
	c.taken = c.taken[:len(c.items)]
	return c
}

// wholeCover is newCover with the items that others dominate at these prices. They may need
// less of a scarce resource.
func wholeCover(app *Application, lambda float64, prices []float64) *cover {
	c := &cover{need: app.Load, size: len(app.Options), value: math.Inf(1)}
	for i := range app.Options {
		o := &app.Options[i]
		if !o.serves(app.Load) {
			continue
		}
		cost := o.Cost
		for k, need := range o.Needs {
			cost += prices[k] * need
		}
		loading := lambda * o.Loading * o.Cost
		if o.Running > 0 && loading > 0 {
			c.items = append(c.items, item{i, o.Rate, cost, o.Running, cost / o.Rate})
		}
		c.items = append(c.items, item{i, o.Rate, cost + loading, math.MaxInt, (cost + loading) / o.Rate})
	}
	slices.SortFunc(c.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.ratio, b.ratio), cmp.Compare(b.rate, a.rate), cmp.Compare(a.option, b.option))
	})
	c.taken = make([]int, len(c.items))
	return c
}

// dominated reports whether y replaces each instance of x. Of equal ones, the first does.
func dominated(x, y item) bool {
	if y.most != math.MaxInt || y.option == x.option || y.rate < x.rate || y.cost > x.cost {
		return false
	}
	return y.rate > x.rate || y.cost < x.cost || y.option < x.option
}

// counts are by option what taken is by item.
func (c *cover) counts(taken []int) []int {
	n := make([]int, c.size)
	for i, t := range taken {
		n[c.items[i].option] += t
	}
	return n
}

// solve returns the cheapest counts, nil if the load cannot be served, and a lower bound of
// their cost at the prices. The bound is their cost unless the search takes more than limit
// steps.
func (c *cover) solve(limit int) (counts []int, bound float64) {
	if c.need <= 0 {
		return make([]int, c.size), 0
	}
	if len(c.items) == 0 {
		return nil, 0
	}
	c.limit = limit
	c.descend(0, c.need, 0)
	if c.work > limit {
		return c.counts(c.best), c.need * c.items[0].ratio
	}
	return c.counts(c.best), c.value
}

// instances is the number of instances of a rate for a load above 0.
func instances(load, rate float64) int {
	return max(1, int(math.Ceil(load/rate*(1-tolerance))))
}

// descend tries all counts of the items from the i-th on for the load that is left.
func (c *cover) descend(i int, left, cost float64) {
	it := &c.items[i]
	last := i+1 == len(c.items)
	for n := min(it.most, instances(left, it.rate)); n >= 0; n-- {
		if c.work++; c.work > c.limit && c.best != nil { // The first descent always serves the load.
			return
		}
		now, rest := cost+float64(n)*it.cost, left-float64(n)*it.rate
		c.taken[i] = n
		switch {
		case rest <= tolerance*c.need:
			if now < c.value*(1-tolerance) {
				c.value, c.best = now, slices.Clone(c.taken)
			}
		case last || now+rest*c.items[i+1].ratio >= c.value*(1-tolerance):
			// Fewer of this item cost more: the others are dearer per request.
			c.taken[i] = 0
			return
		default:
			c.descend(i+1, rest, now)
		}
	}
	c.taken[i] = 0
}
