package packing

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// shape is a need that some items have in common. Only the one with the highest value matters.
type shape struct {
	need  [dimensions]int
	off   int // the need's distance in cells
	items []int
	value float64 // the highest value of the items
	item  int     // the item with that value, or -1
}

// knapsack finds the most valuable pattern for every amount of room at once. best[cell] is the
// value of the best multiset of items that fits into cell. pick[cell] is the shape of one of its
// items, or -1. Items may be taken any number of times.
type knapsack struct {
	grid   *grid
	shapes []shape
	best   []float64
	pick   []int32
}

func newKnapsack(items []Item, classes []Class, loose bool) *knapsack {
	g := newGrid(items, classes, loose)
	k := &knapsack{grid: g}
	cells := g.stride[dimensions-1] * g.size[dimensions-1]
	k.best, k.pick = make([]float64, cells), make([]int32, cells)
	index := map[[dimensions]int]int{}
	for i, it := range items {
		var need [dimensions]int
		off, fits := 0, true
		for d, x := range amounts(it.Need) {
			n := g.need(d, x)
			if n >= int64(g.size[d]) {
				fits = false
				break
			}
			need[d] = int(n)
			off += g.stride[d] * need[d]
		}
		if !fits {
			continue
		}
		s, known := index[need]
		if !known {
			s = len(k.shapes)
			index[need] = s
			k.shapes = append(k.shapes, shape{need: need, off: off})
		}
		k.shapes[s].items = append(k.shapes[s].items, i)
	}
	return k
}

// twin returns a knapsack of the same items for other values.
func (k *knapsack) twin() *knapsack {
	return &knapsack{k.grid, slices.Clone(k.shapes), make([]float64, len(k.best)), make([]int32, len(k.pick))}
}

// fill calculates the table for the items' values. It does not take items without a positive
// value.
func (k *knapsack) fill(worth []float64) {
	for s := range k.shapes {
		sh := &k.shapes[s]
		sh.value, sh.item = 0, -1
		for _, i := range sh.items {
			if worth[i] > sh.value {
				sh.value, sh.item = worth[i], i
			}
		}
	}
	clear(k.best)
	for i := range k.pick {
		k.pick[i] = -1
	}
	for s := range k.shapes {
		if k.shapes[s].item >= 0 {
			k.take(s)
		}
	}
}

// take lets the table use one shape any number of times: it updates a cell's predecessor before
// the cell.
func (k *knapsack) take(s int) {
	sh, size, stride := &k.shapes[s], k.grid.size, k.grid.stride
	for d3 := sh.need[3]; d3 < size[3]; d3++ {
		for d2 := sh.need[2]; d2 < size[2]; d2++ {
			for d1 := sh.need[1]; d1 < size[1]; d1++ {
				row := d3*stride[3] + d2*stride[2] + d1*stride[1]
				best, from := k.best[row+sh.need[0]:row+size[0]], k.best[row+sh.need[0]-sh.off:]
				pick := k.pick[row+sh.need[0]:]
				for c := range best {
					if v := from[c] + sh.value; v > best[c] {
						best[c], pick[c] = v, int32(s)
					}
				}
			}
		}
	}
}

// value is the value of the best pattern for a room.
func (k *knapsack) value(free cluster.Resources) float64 { return k.best[k.grid.cell(free)] }

// pattern lists the items of the best pattern for a room, by item.
func (k *knapsack) pattern(free cluster.Resources) []Use {
	var uses []Use
	for cell := k.grid.cell(free); k.pick[cell] >= 0; {
		s := &k.shapes[k.pick[cell]]
		cell -= s.off
		if i := slices.IndexFunc(uses, func(u Use) bool { return u.Item == s.item }); i >= 0 {
			uses[i].Count++
		} else {
			uses = append(uses, Use{s.item, 1})
		}
	}
	slices.SortFunc(uses, func(a, b Use) int { return a.Item - b.Item })
	return uses
}
