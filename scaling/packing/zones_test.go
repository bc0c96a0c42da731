package packing

import (
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// Two demands without common nodes are solved as two problems. Nodes that neither may
// use stay empty, and a demand without nodes gets nothing.
func TestBarred(t *testing.T) {
	core := cluster.Resources{CPU: 1000}
	node := cluster.Resources{CPU: 4000}
	p := Problem{
		Demands: []float64{70, 25, 5},
		Items:   []Item{{Demands: []int{0}, Rate: 10, Need: core}, {Demands: []int{1}, Rate: 10, Need: core}, {Demands: []int{2}, Rate: 10, Need: core}},
		Classes: []Class{
			{Free: node, Count: 10, Cost: 1, Barred: []bool{false, true, true}},
			{Free: node, Count: 10, Cost: 1, Barred: []bool{true, false, true}},
			{Free: node, Count: 10, Cost: 0.1, Barred: []bool{true, true, true}},
		},
	}
	s, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	p.verify(t, s)
	if s.Served[0] < 70 || s.Served[1] < 25 || s.Served[2] != 0 {
		t.Errorf("%v are served", s.Served)
	}
	nodes := [3]int{}
	for _, f := range s.Filled {
		nodes[f.Class] += f.Count
	}
	if nodes != [3]int{2, 1, 0} {
		t.Errorf("%v nodes of the classes are used, want 2 of the first and 1 of the second", nodes)
	}
	if theta, err := Bound(p); err != nil || theta != 0 {
		t.Errorf("the bound is %v, %v: the third demand cannot be served", theta, err)
	}
}

// Scarce nodes go to the demand that has no other: the first demand may use both
// nodes, the second only one of them.
func TestBarredFromTheFreeOne(t *testing.T) {
	core := cluster.Resources{CPU: 1000}
	p := Problem{
		Demands: []float64{40, 40},
		Items:   []Item{{Demands: []int{0}, Rate: 10, Need: core}, {Demands: []int{1}, Rate: 10, Need: core}},
		Classes: []Class{
			{Free: cluster.Resources{CPU: 4000}, Count: 1, Cost: 1},
			{Free: cluster.Resources{CPU: 4000}, Count: 1, Cost: 1, Barred: []bool{false, true}},
		},
	}
	s, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	p.verify(t, s)
	if s.Served[0] < 40 || s.Served[1] < 40 {
		t.Errorf("%v are served, want all 40 of both", s.Served)
	}
}

func TestBarredOfOtherDemands(t *testing.T) {
	p := Problem{Demands: []float64{1, 1}, Classes: []Class{{Count: 1, Barred: []bool{true}}}}
	if _, err := Solve(p); err == nil {
		t.Error("a class that tells of one demand of two is no error")
	}
}
