package packing

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

// shrink takes away instances that are not needed, and exchanges others for ones
// that need less of something, and no more of anything, and serve enough.
func (r *rounding) shrink() {
	for o := range r.opens {
		for r.drop(&r.opens[o]) {
		}
		for r.reduce(&r.opens[o]) {
		}
	}
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

// reduce exchanges one instance for one that costs less.
func (r *rounding) reduce(o *open) bool {
	for _, u := range o.uses {
		old := &r.Items[u.Item]
		best, enough := -1, (old.Rate-r.spare(old.Demand))*(1-1e-12)
		for _, i := range r.items[old.Demand] {
			it := &r.Items[i]
			if it.Need.Fits(old.Need) && it.Rate >= enough && it.Cost < old.Cost*(1-1e-9) && (best < 0 || it.Cost < r.Items[best].Cost) {
				best = i
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
