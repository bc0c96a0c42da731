// Package packing fills nodes with instances of many functions at once. A
// pattern is what one node holds; how many nodes get which pattern is a linear
// program whose columns are made as they are needed (column generation, as for
// cutting stock: Gilmore and Gomory, 1961) and whose solution is then rounded.
//
// The package knows numbers only: demands, items that serve them, nodes with
// room. The caller decides what may be an item: which objectives are met, how fast a batch
// is.
package packing

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Item is one way to serve demands: an instance of a config.
type Item struct {
	// Demands are the indices of the demands that it serves: most often one. Its rate
	// counts for each of them. For example an accurate variant of a model serves two
	// demands, that of all requests and that of those which ask for accuracy; a lesser
	// variant serves the first alone.
	Demands []int
	// Rate is how many requests per second it serves.
	Rate float64
	// Need is what it takes of a node. CPU or GPU must be above 0.
	Need cluster.Resources
	// Cost is what it costs on top of its node.
	Cost float64
}

// Class is a number of nodes that have the same room.
type Class struct {
	// Free is what each of them has to give.
	Free cluster.Resources
	// Count is how many there are.
	Count int
	// Cost is what one of them costs if it is used at all (Eq. 2 of INFless:
	// βC + G, what stays empty included); 0 for nodes that are used anyway.
	Cost float64
	// Barred tells, by demand, which must not be served by these nodes; nil if
	// all may. An item for several demands must be allowed by all of them.
	Barred []bool
}

// Problem is what is to be packed.
type Problem struct {
	// Demands are in requests per second, one per function.
	Demands []float64
	Items   []Item
	Classes []Class
}

// Use is a number of instances of an item.
type Use struct{ Item, Count int }

// Filled is a number of nodes of a class that hold the same.
type Filled struct {
	Class, Count int
	// Uses are by item.
	Uses []Use
}

// Solution is what [Solve] found.
type Solution struct {
	// Filled are the nodes that are used.
	Filled []Filled
	// Served is, per demand, what the instances serve; it is at least the
	// demand unless there is no room.
	Served []float64
	// Prices say, per demand, what one more request per second costs in the
	// linear program; where there is no room for all, they are relative to
	// each other only.
	Prices []float64
	// Values say, per class, what the best pattern would be worth at these
	// prices.
	Values []float64
	// Theta is the part of all demands that the linear program serves, 1 where
	// there is room, and Cost what it costs there. Both are what an ideal
	// packing of cut instances would reach.
	Theta, Cost float64
}

// repeated reports whether a number is in a list twice.
func repeated(all []int) bool {
	for i, k := range all {
		if slices.Contains(all[:i], k) {
			return true
		}
	}
	return false
}

// check names the first number that cannot be.
func (p *Problem) check() error {
	for k, d := range p.Demands {
		if !(d >= 0) || math.IsInf(d, 1) {
			return fmt.Errorf("demand %d is %v: it must be a number of requests per second", k, d)
		}
	}
	for i, it := range p.Items {
		n := it.Need
		switch {
		case len(it.Demands) == 0:
			return fmt.Errorf("item %d is for no demand", i)
		case slices.ContainsFunc(it.Demands, func(k int) bool { return k < 0 || k >= len(p.Demands) }):
			return fmt.Errorf("item %d is for the demands %d of %d", i, it.Demands, len(p.Demands))
		case repeated(it.Demands):
			return fmt.Errorf("item %d is for one of the demands %d twice", i, it.Demands)
		case !(it.Rate > 0) || math.IsInf(it.Rate, 1):
			return fmt.Errorf("item %d serves %v requests per second: it must be more than 0", i, it.Rate)
		case n.CPU < 0 || n.GPU < 0 || n.Memory < 0 || n.GPUMemory < 0:
			return fmt.Errorf("item %d needs less than nothing: %+v", i, n)
		case n.CPU == 0 && n.GPU == 0:
			return fmt.Errorf("item %d needs neither CPU nor GPU", i)
		case !(it.Cost >= 0) || math.IsInf(it.Cost, 1):
			return fmt.Errorf("item %d costs %v", i, it.Cost)
		}
	}
	for j, c := range p.Classes {
		if c.Count < 0 || !(c.Cost >= 0) || math.IsInf(c.Cost, 1) {
			return fmt.Errorf("class %d: %d nodes at a cost of %v", j, c.Count, c.Cost)
		}
		if c.Barred != nil && len(c.Barred) != len(p.Demands) {
			return fmt.Errorf("class %d tells of %d demands which it bars: there are %d", j, len(c.Barred), len(p.Demands))
		}
	}
	return nil
}
