package packing

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// balance exchanges instances in the nodes that were filled by themselves as long
// as the demand of which the smallest part is served gains by it and no other one
// falls below that.
func (r *rounding) balance() {
	for range balances {
		poorest, least := r.poorest()
		if least >= 1 || !r.favour(poorest, least) {
			return
		}
	}
}

// balances bounds the work.
const balances = 100

// poorest is the demand of which the smallest part is served.
func (r *rounding) poorest() (demand int, part float64) {
	part = 1
	for _, k := range r.demands {
		if p := r.part(k, 0); p < part*(1-1e-9) {
			demand, part = k, p
		}
	}
	return demand, part
}

// part is what part of a demand is served, with so much more.
func (r *rounding) part(k int, more float64) float64 {
	return (r.solution.Served[k] + more) / r.Demands[k]
}

// favour makes the exchange of one instance by which demand k gains most.
func (r *rounding) favour(k int, least float64) bool {
	node, old, item, count := -1, 0, 0, 0
	best := least * (1 + 1e-6)
	for o := range r.opens {
		for _, u := range r.opens[o].uses {
			given := &r.Items[u.Item]
			room := r.opens[o].room.Add(given.Need)
			for _, i := range r.items[k] {
				it := &r.Items[i]
				n := 0
				for left := room; it.Need.Fits(left); n++ {
					left = left.Sub(it.Need)
				}
				var after float64
				if given.Demand == k {
					after = r.part(k, float64(n)*it.Rate-given.Rate)
				} else {
					after = min(r.part(k, float64(n)*it.Rate), r.part(given.Demand, -given.Rate))
				}
				if n > 0 && after > best {
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

// shrink makes the nodes that were filled by themselves cheaper: instances that
// are not needed go, and others are exchanged for cheaper ones that serve enough,
// as long as some item still fits: what nothing can use is not worth saving.
func (r *rounding) shrink() {
	for o := range r.opens {
		for r.drop(&r.opens[o]) {
		}
		for r.fitsAny(r.opens[o].room) && r.cheapen(&r.opens[o]) {
		}
	}
}

// fitsAny reports whether some item that is asked for fits into a room.
func (r *rounding) fitsAny(room cluster.Resources) bool {
	return slices.ContainsFunc(r.Items, func(it Item) bool { return r.row[it.Demand] >= 0 && it.Need.Fits(room) })
}

// spare is what is served of a demand beyond what is asked for.
func (r *rounding) spare(k int) float64 { return max(0, r.solution.Served[k]-r.Demands[k]) }

// drop takes an instance away that is not needed.
func (r *rounding) drop(o *open) bool {
	for _, u := range o.uses {
		if it := &r.Items[u.Item]; it.Rate <= r.spare(it.Demand) {
			r.put(o, u.Item, -1)
			return true
		}
	}
	return false
}

// cheapen exchanges one instance.
func (r *rounding) cheapen(o *open) bool {
	for _, u := range o.uses {
		it := &r.Items[u.Item]
		item, n := r.instead(o, u.Item, it.Rate-r.spare(it.Demand))
		if n == 0 {
			continue
		}
		r.put(o, u.Item, -1)
		r.put(o, item, n)
		return true
	}
	return false
}

// instead finds the cheapest way to serve rate by instances of one item in the
// place of one of another, after which something else still fits; no instance if
// there is none that is cheaper.
func (r *rounding) instead(o *open, item int, rate float64) (best, count int) {
	old := &r.Items[item]
	room := o.room.Add(old.Need)
	least := old.Cost * (1 - 1e-9)
	for _, i := range r.items[old.Demand] {
		it := &r.Items[i]
		n, served, left := 0, 0.0, room
		for served < rate*(1-1e-12) && it.Need.Fits(left) && float64(n+1)*it.Cost < least {
			left = left.Sub(it.Need)
			served += it.Rate
			n++
		}
		if served >= rate*(1-1e-12) && r.fitsAny(left) {
			best, count, least = i, n, float64(n)*it.Cost
		}
	}
	return best, count
}
