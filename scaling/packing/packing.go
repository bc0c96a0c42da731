// Package packing fills nodes with instances of many functions at once. A pattern is the content
// of one node. A linear program decides how many nodes get which pattern. Its columns are
// generated as needed (column generation, as for cutting stock: Gilmore and Gomory, 1961), and its
// solution is then rounded.
//
// The package handles numbers only: demands, items that serve them, nodes with room. The caller
// decides what may be an item: which objectives are met, how fast a batch is. Begin with [Problem]
// and [Solve].
package packing

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Item is one way to serve demands: an instance of a config.
type Item struct {
	// Demands has the indices of the demands that it serves, mostly one. Its rate counts
	// for each of them. For example an accurate variant of a model serves two demands: all
	// requests, and those that ask for accuracy. A less accurate variant serves only the
	// first.
	Demands []int
	// Rate is how many requests per second it serves.
	Rate float64
	// Need is what it takes from a node. CPU or GPU must be above 0.
	Need cluster.Resources
	// Cost is its cost on top of its node's.
	Cost float64
}

// Class is a number of nodes with the same room.
type Class struct {
	// Free is the room of each node.
	Free cluster.Resources
	// Count is the number of nodes.
	Count int
	// Cost is the cost of using one node at all (Eq. 2 of INFless: βC + G, including what
	// stays empty). It is 0 for nodes that are in use anyway.
	Cost float64
	// Barred says, by demand, whether these nodes must not serve it; nil if all may. An
	// item for several demands must be allowed by all of them.
	Barred []bool
}

// Problem is a set of demands to pack into nodes.
type Problem struct {
	// Demands are in requests per second, one per function.
	Demands []float64
	Items   []Item
	Classes []Class
	// Work bounds the work.
	Work *Work
}

// Use is a number of instances of an item.
type Use struct{ Item, Count int }

// Filled is a number of nodes of a class with the same pattern.
type Filled struct {
	Class, Count int
	// Uses are by item.
	Uses []Use
}

// Solution is the result of [Solve].
type Solution struct {
	// Filled has the nodes that are used.
	Filled []Filled
	// Served is, per demand, the rate that the instances serve. It is at least the demand
	// unless there is no room.
	Served []float64
	// Prices is, per demand, the cost of one more request per second in the linear
	// program. If there is no room for all, only the ratios of prices have a meaning.
	Prices []float64
	// Values is, per class, the value of the best pattern at these prices.
	Values []float64
	// Theta is the part of all demands that the linear program serves, 1 if there is room.
	// Cost is its cost. An ideal packing of divisible instances would reach both.
	Theta, Cost float64
	// Rough: the work was not enough to solve the linear program. Prices, Values, Theta and
	// Cost are those of a part of it. The nodes are filled as well as these allow.
	Rough bool
}

// repeated reports whether a list has a number twice.
func repeated(all []int) bool {
	for i, k := range all {
		if slices.Contains(all[:i], k) {
			return true
		}
	}
	return false
}

// check returns an error that names the first number that is not valid.
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
			return fmt.Errorf("item %d serves no demand: give at least one", i)
		case slices.ContainsFunc(it.Demands, func(k int) bool { return k < 0 || k >= len(p.Demands) }):
			return fmt.Errorf("item %d serves the demands %d: there are %d, from 0 on", i, it.Demands, len(p.Demands))
		case repeated(it.Demands):
			return fmt.Errorf("item %d serves one of the demands %d twice: give each once", i, it.Demands)
		case !(it.Rate > 0) || math.IsInf(it.Rate, 1):
			return fmt.Errorf("item %d serves %v requests per second: it must be more than 0", i, it.Rate)
		case n.CPU < 0 || n.GPU < 0 || n.Memory < 0 || n.GPUMemory < 0:
			return fmt.Errorf("item %d has a negative need: %+v", i, n)
		case n.CPU == 0 && n.GPU == 0:
			return fmt.Errorf("item %d needs neither CPU nor GPU: give one of them", i)
		case !(it.Cost >= 0) || math.IsInf(it.Cost, 1):
			return fmt.Errorf("item %d costs %v: give a finite cost, 0 or more", i, it.Cost)
		}
	}
	for j, c := range p.Classes {
		if c.Count < 0 || !(c.Cost >= 0) || math.IsInf(c.Cost, 1) {
			return fmt.Errorf("class %d has %d nodes at a cost of %v: give 0 or more of both", j, c.Count, c.Cost)
		}
		if c.Barred != nil && len(c.Barred) != len(p.Demands) {
			return fmt.Errorf("class %d has %d entries in Barred: give one for each of the %d demands", j, len(c.Barred), len(p.Demands))
		}
	}
	return nil
}
