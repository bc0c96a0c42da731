// Package packing fills nodes with instances of many functions at once. A
// pattern is what one node holds; which patterns are used how often is a linear
// program whose columns are found as they are needed (column generation, as for
// cutting stock: Gilmore and Gomory 1961), and then rounded.
//
// The package knows numbers only: demands, items that serve them, nodes with
// room. What may be an item (which SLOs are met, how fast a batch is) is decided
// by the caller.
package packing

import "github.com/faas-infer/faas-infer/cluster"

// Item is one way to serve a demand: an instance of a config.
type Item struct {
	// Demand is the index of the demand that it serves.
	Demand int
	// Rate is how many requests per second it serves.
	Rate float64
	// Need is what it takes of a node. CPU or GPU must be above 0.
	Need cluster.Resources
}

// Class is a number of nodes that have the same room.
type Class struct {
	// Free is what each of them has to give.
	Free cluster.Resources
	// Count is how many there are.
	Count int
	// Cost is what one of them costs if it is used at all (Eq. 2: βC + G, what
	// stays empty included); 0 for nodes that are used anyway.
	Cost float64
}

// Problem is what is to be packed.
type Problem struct {
	// Demands are in requests per second, one per function.
	Demands []float64
	Items   []Item
	Classes []Class
}
