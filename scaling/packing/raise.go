package packing

import (
	"maps"
	"slices"
)

// minServedGain is the part of the missing load that a higher price must serve. Less may be a
// rest that generate left (see gap).
const minServedGain = 0.01

// raise raises the cost of missing load if that serves more, and otherwise changes nothing. A
// missing request costs a multiple of the cheapest items' cost (see dear). That is too little if
// only more expensive items find room, as on the last node with a GPU. raise applies to problems
// in which the items make the cost: a node's own cost is the same whatever is on it.
func (g *program) raise() {
	lacks := g.lacking()
	if lacks < 1e-7 || slices.ContainsFunc(g.classes, g.nodesAreDear) {
		return
	}
	factor := 10 * g.dearest() / g.missing
	if factor <= 1 {
		return
	}
	before, missing := g.master.clone(), g.missing
	g.missing *= factor
	for j := range g.columns {
		if c := &g.columns[j]; c.class < 0 {
			c.cost *= factor
		}
	}
	g.price()
	g.generate()
	if g.lacking() > (1-minServedGain)*lacks {
		g.master, g.missing = before, missing
	}
}

// dearest is the cost of serving each demand with its most expensive item that has room
// somewhere.
func (g *program) dearest() float64 {
	most := make([]float64, len(g.demands))
	for n := range g.Items {
		it := &g.Items[n]
		for _, j := range g.classes {
			c := &g.Classes[j]
			if !it.Need.Fits(c.Free) || c.bars(it) {
				continue
			}
			for _, k := range it.Demands {
				if i := g.row[k]; i >= 0 {
					most[i] = max(most[i], (c.Cost+it.Cost)*g.Demands[k]/it.Rate)
				}
			}
		}
	}
	sum := 0.0
	for _, c := range most {
		sum += c
	}
	return sum
}

// lacking is the part of all demands that is unserved.
func (g *program) lacking() float64 {
	if at := g.where[g.everywhere()]; at >= 0 {
		return g.x[at]
	}
	return 0
}

// clone returns an independent copy. It shares the columns' entries, which do not change.
func (m *master) clone() *master {
	c := *m
	c.columns, c.basis, c.where = slices.Clone(m.columns), slices.Clone(m.basis), slices.Clone(m.where)
	c.x, c.inverse, c.prices = slices.Clone(m.x), m.inverse.clone(), slices.Clone(m.prices)
	c.known = maps.Clone(m.known)
	return &c
}
