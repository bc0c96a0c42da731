// Package joint places the loads of several functions at once, by patterns of whole
// nodes ([packing]): a node's cores and GPU are filled best by instances of different
// functions.
package joint

import (
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Where a plan's costs lie. Nodes count first (Eq. 2): of plans with as many nodes
// the one that takes less of them is better (shareCost, as a part of what a node's
// resources do). Room on nodes that are used already costs nearly as much as the
// part of a new node that holds as much (roomCost): if it were free, it would be
// given to instances that fill it badly.
const (
	shareCost = 0.1
	roomCost  = 0.9
)

// Thrift says what a plan spares.
type Thrift struct {
	// Lean plans take as few resources as they can, on no more than Nodes new
	// nodes; others take as few nodes as they can.
	Lean  bool
	Nodes int
	// Crowded plans have no room for all load anyway.
	Crowded bool
}

// Demand is what one function is short of.
type Demand struct {
	// Need is in requests per second, above 0.
	Need float64
	// Choices are what its instances may be, Configs what these were chosen from.
	Choices []capacity.Choice
	Configs []capacity.Candidate
	// Allowed is where they may start.
	Allowed placing.Allowed
}

// Problem is a demand of several functions that is placed at once.
type Problem struct {
	Thrift
	Demands []Demand
	// needs are the demands', items all of their choices in one list.
	needs []float64
	items []packing.Item
	// from is the first item of each demand, of the demand of each item.
	from, of []int
}

// New puts the demands together.
func New(by Thrift, demands []Demand) *Problem {
	p := &Problem{Thrift: by, Demands: demands}
	share := shareCost
	if by.Lean {
		share = 1
	}
	for k, d := range demands {
		p.needs, p.from = append(p.needs, d.Need), append(p.from, len(p.items))
		for _, c := range d.Choices {
			p.items = append(p.items, packing.Item{Demands: []int{k}, Rate: c.Range.Up, Need: c.Config.Resources, Cost: share * c.Cost})
			p.of = append(p.of, k)
		}
	}
	return p
}

// Item is an item of a [packing.Solution].
func (p *Problem) Item(i int) packing.Item { return p.items[i] }

// Of is the demand that an item is a choice of.
func (p *Problem) Of(i int) int { return p.of[i] }

// Choice is what an item stands for.
func (p *Problem) Choice(i int) *capacity.Choice {
	k := p.of[i]
	return &p.Demands[k].Choices[i-p.from[k]]
}

// Solve packs the demand into the room, which is left as it is.
func (p *Problem) Solve(room *placing.Room) ([]Class, packing.Solution) {
	classes := p.classes(room)
	problem := packing.Problem{Demands: p.needs, Items: p.items}
	for _, c := range classes {
		problem.Classes = append(problem.Classes, c.Class)
	}
	s, err := packing.Solve(problem)
	if err != nil { // Only numbers that no candidate has could be refused.
		return nil, packing.Solution{Served: make([]float64, len(p.needs))}
	}
	return classes, s
}

// Place packs the demand and takes the room. It returns, per demand, what was
// placed and what is left over.
func (p *Problem) Place(room *placing.Room) []placing.Placement {
	placements := make([]placing.Placement, len(p.Demands))
	classes, s := p.Solve(room)
	next := make([]int, len(classes))
	for _, f := range s.Filled {
		for range f.Count {
			at := classes[f.Class].Places[next[f.Class]]
			next[f.Class]++
			for _, u := range f.Uses {
				for range u.Count {
					p.put(room, at, u.Item, placements)
				}
			}
		}
	}
	for k := range placements {
		p.tell(k, &placements[k])
	}
	return placements
}

// tell says what a demand's placement leaves over, and why.
func (p *Problem) tell(k int, left *placing.Placement) {
	d := &p.Demands[k]
	left.Residual = d.Need
	for _, x := range left.Placed {
		left.Residual -= x.Range.Up
	}
	switch {
	case left.Residual <= capacity.Negligible*d.Need:
		left.Residual = 0
	case len(d.Choices) == 0:
		left.Reason, left.Fastest = placing.NoConfig, capacity.Fastest(d.Configs)
	case !d.Allowed.Any():
		left.Reason = placing.NoNode
	default:
		left.Reason = placing.NoRoom
	}
}

// put takes the room for one instance, if it is there.
func (p *Problem) put(room *placing.Room, at, item int, placements []placing.Placement) {
	k, c := p.of[item], p.Choice(item)
	if !c.Config.Resources.Fits(room.Places[at].Free) {
		return
	}
	room.Take(at, c.Config.Resources)
	placements[k].Placed = append(placements[k].Placed, placing.Placed{Candidate: c.Candidate, Node: room.Places[at].Name, Range: c.Range})
}
