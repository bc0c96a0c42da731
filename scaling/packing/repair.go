package packing

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// balance exchanges instances in the open nodes as long as the demand with the smallest served part
// gains and no other one falls below that. It exchanges one instance, or, if that does not help,
// all of a node.
func (r *rounding) balance() {
	for range balances {
		poorest, least := r.poorest()
		if least >= 1 || !r.favour(poorest, least) && !r.refill(least) {
			return
		}
	}
}

// balances bounds the number of exchanges.
const balances = 100

// poorest returns the demand with the smallest served part.
func (r *rounding) poorest() (demand int, part float64) {
	part = 1
	for _, k := range r.demands {
		if p := r.part(k, 0); p < part*(1-1e-9) {
			demand, part = k, p
		}
	}
	return demand, part
}

// part is the served part of a demand, with more requests per second on top.
func (r *rounding) part(k int, more float64) float64 {
	return (r.solution.Served[k] + more) / r.Demands[k]
}

// favour makes the exchange of one instance by which demand k gains most. It reports whether there
// is one.
func (r *rounding) favour(k int, least float64) bool {
	node, old, item, count := -1, 0, 0, 0
	best := least * (1 + 1e-6)
	for o := range r.opens {
		for _, u := range r.opens[o].uses {
			given := &r.Items[u.Item]
			room := r.opens[o].room.Add(given.Need)
			for _, i := range r.items[k] {
				it := &r.Items[i]
				if r.Classes[r.opens[o].class].bars(it) {
					continue
				}
				n := 0
				for left := room; it.Need.Fits(left); n++ {
					left = left.Sub(it.Need)
				}
				if after := r.after(k, it, n, given); n > 0 && after > best {
					node, old, item, count, best = o, u.Item, i, n, after
				}
			}
		}
	}
	if node < 0 {
		return false
	}
	r.put(&r.opens[node], old, -1)
	r.put(&r.opens[node], item, count)
	return true
}

// after is the smallest served part, of demand k and the demands of given, if n instances of it
// replace one of given.
func (r *rounding) after(k int, it *Item, n int, given *Item) float64 {
	more := func(k int) (rate float64) {
		if slices.Contains(it.Demands, k) {
			rate += float64(n) * it.Rate
		}
		if slices.Contains(given.Demands, k) {
			rate -= given.Rate
		}
		return rate
	}
	least := r.part(k, more(k))
	for _, other := range given.Demands {
		if other != k {
			least = min(least, r.part(other, more(other)))
		}
	}
	return least
}

// refills bounds the nodes that refill tries, and looks the patterns for each.
const refills, looks = 8, 32

// refill packs one node again if the demand with the smallest served part gets more by that. A
// demand's value is higher the less of it is served, and it is adjusted after each pattern
// (multiplicative weights). It reports whether it did.
func (r *rounding) refill(least float64) bool {
	node := -1
	var best []Use
	most := least * (1 + 1e-6)
	for o := range r.opens[:min(refills, len(r.opens))] {
		served := slices.Clone(r.solution.Served)
		for _, u := range r.opens[o].uses {
			r.Items[u.Item].serve(served, -u.Count)
		}
		if uses, part := r.repack(r.opens[o].class, served, most); part > most {
			node, best, most = o, uses, part
		}
	}
	if node < 0 {
		return false
	}
	for _, u := range slices.Clone(r.opens[node].uses) {
		r.put(&r.opens[node], u.Item, -u.Count)
	}
	return r.place(node, best)
}

// repack looks for the pattern that maximises the smallest served part of all demands. served is
// the rate without it.
func (r *rounding) repack(class int, served []float64, most float64) (best []Use, part float64) {
	weights, each := make([]float64, len(served)), make([]float64, len(served))
	for range looks {
		for _, k := range r.demands {
			each[k] = math.Exp(weights[k]) / r.Demands[k]
		}
		for i := range r.Items {
			it := &r.Items[i]
			r.worth[i] = 0
			for _, k := range it.Demands {
				r.worth[i] += each[k] * it.Rate
			}
		}
		r.sacks.fillFor(class, r.worth)
		uses := r.sacks.pattern(class, r.Classes[class].Free)
		after := slices.Clone(served)
		for _, u := range uses {
			r.Items[u.Item].serve(after, u.Count)
		}
		least, largest := math.Inf(1), 0.0
		for _, k := range r.demands {
			least, largest = min(least, after[k]/r.Demands[k]), max(largest, after[k]/r.Demands[k])
		}
		if least > most {
			best, most, part = uses, least, least
		}
		for _, k := range r.demands {
			weights[k] -= 0.5 * (after[k]/r.Demands[k] - least) / max(largest-least, 1e-9)
		}
	}
	return best, part
}

// shrink removes instances that are not needed. It exchanges others for cheaper ones that serve
// enough and need no more of any resource.
func (r *rounding) shrink() {
	for o := range r.opens {
		for r.drop(&r.opens[o]) {
		}
		for r.reduce(&r.opens[o]) {
		}
	}
}

// grow gives room that no demanded item could use to the present instances, if that makes them
// faster and using the node has a cost. Then it removes instances that are no longer needed.
func (r *rounding) grow() {
	for o := range r.opens {
		node := &r.opens[o]
		for r.Classes[node.class].Cost > 0 && !r.fitsAny(node.class, node.room) && r.raise(node) {
		}
	}
	for o := range r.opens {
		for r.drop(&r.opens[o]) {
		}
	}
}

// raise exchanges the instance that gains most for a faster one. It reports whether there is one.
func (r *rounding) raise(o *open) bool {
	old, item, most := 0, -1, 0.0
	for _, u := range o.uses {
		it := &r.Items[u.Item]
		room := o.room.Add(it.Need)
		for _, i := range r.items[it.Demands[0]] {
			faster := &r.Items[i]
			if gain := faster.Rate/it.Rate - 1; faster.replaces(it) && gain > max(most, 1e-9) && faster.Need.Fits(room) && faster.Cost <= r.Classes[o.class].Cost {
				old, item, most = u.Item, i, gain
			}
		}
	}
	if item < 0 {
		return false
	}
	r.put(o, old, -1)
	r.put(o, item, 1)
	return true
}

// slack is the served rate of a demand beyond the demand.
func (r *rounding) slack(k int) float64 { return max(0, r.solution.Served[k]-r.Demands[k]) }

// spare is the least slack of an item's demands.
func (r *rounding) spare(it *Item) float64 {
	least := math.Inf(1)
	for _, k := range it.Demands {
		least = min(least, r.slack(k))
	}
	return least
}

// replaces reports whether an item serves all demands of another.
func (it *Item) replaces(other *Item) bool {
	return !slices.ContainsFunc(other.Demands, func(k int) bool { return !slices.Contains(it.Demands, k) })
}

// drop removes an instance that is not needed. It reports whether there is one.
func (r *rounding) drop(o *open) bool {
	for _, u := range o.uses {
		if it := &r.Items[u.Item]; it.Rate <= r.spare(it) {
			r.put(o, u.Item, -1)
			return true
		}
	}
	return false
}

// fitsAny reports whether some demanded item fits into a room on a node of a class.
func (r *rounding) fitsAny(class int, room cluster.Resources) bool {
	c := &r.Classes[class]
	return slices.ContainsFunc(r.least, func(i int) bool { return r.Items[i].Need.Fits(room) && !c.bars(&r.Items[i]) })
}

// reduce exchanges one instance for one that costs less, if the free room is useful: another item
// fits into it, or the node costs no more than the instance. It reports whether it did.
func (r *rounding) reduce(o *open) bool {
	for _, u := range o.uses {
		old, best := &r.Items[u.Item], -1
		for _, k := range old.Demands {
			for _, i := range r.items[k] {
				it := &r.Items[i]
				if !it.Need.Fits(old.Need) || !r.suffices(it, old) || it.Cost >= old.Cost*(1-1e-9) || best >= 0 && it.Cost >= r.Items[best].Cost {
					continue
				}
				if r.Classes[o.class].Cost <= old.Cost || r.fitsAny(o.class, o.room.Add(old.Need).Sub(it.Need)) {
					best = i
				}
			}
		}
		if best >= 0 {
			r.put(o, u.Item, -1)
			r.put(o, best, 1)
			return true
		}
	}
	return false
}

// suffices reports whether all demands of old stay served if it replaces old.
func (r *rounding) suffices(it, old *Item) bool {
	for _, k := range old.Demands {
		rate := 0.0
		if slices.Contains(it.Demands, k) {
			rate = it.Rate
		}
		if rate < (old.Rate-r.slack(k))*(1-1e-12) {
			return false
		}
	}
	return true
}
