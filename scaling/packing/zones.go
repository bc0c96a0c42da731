package packing

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// bars reports whether nodes of the class must not serve some demand of the item.
func (c *Class) bars(it *Item) bool {
	return c.Barred != nil && slices.ContainsFunc(it.Demands, func(k int) bool { return c.Barred[k] })
}

// zones has a problem's knapsacks: one for all classes that bar the same demands, because these
// have the same best patterns.
type zones struct {
	items []Item
	// of has each class' zone, and barred the demands that each zone bars.
	of     []int
	barred [][]bool
	sacks  []*knapsack
	worth  []float64
}

// newZones returns the zones of a problem. usable has the classes that some item fits.
func newZones(p *Problem, usable []Class, loose bool) *zones {
	z := &zones{items: p.Items, of: make([]int, len(p.Classes))}
	for j := range p.Classes {
		barred := p.Classes[j].Barred
		if !slices.Contains(barred, true) {
			barred = nil
		}
		at := slices.IndexFunc(z.barred, func(b []bool) bool { return slices.Equal(b, barred) })
		if at < 0 {
			at = len(z.barred)
			z.barred = append(z.barred, barred)
		}
		z.of[j] = at
	}
	first := newKnapsack(p.Items, usable, loose)
	z.sacks = append(z.sacks, first)
	for len(z.sacks) < len(z.barred) {
		z.sacks = append(z.sacks, first.twin())
	}
	return z
}

// fill calculates the tables for the items' values.
func (z *zones) fill(worth []float64) {
	for n := range z.barred {
		z.fillZone(n, worth)
	}
}

// fillFor is fill for the nodes of one class.
func (z *zones) fillFor(class int, worth []float64) { z.fillZone(z.of[class], worth) }

func (z *zones) fillZone(n int, worth []float64) {
	barred := z.barred[n]
	if barred == nil {
		z.sacks[n].fill(worth)
		return
	}
	z.worth = append(z.worth[:0], worth...)
	for i := range z.worth {
		if slices.ContainsFunc(z.items[i].Demands, func(k int) bool { return barred[k] }) {
			z.worth[i] = 0
		}
	}
	z.sacks[n].fill(z.worth)
}

// value is the value of the best pattern for a room on a node of a class.
func (z *zones) value(class int, free cluster.Resources) float64 {
	return z.sacks[z.of[class]].value(free)
}

// pattern lists the items of that pattern, by item.
func (z *zones) pattern(class int, free cluster.Resources) []Use {
	return z.sacks[z.of[class]].pattern(free)
}
