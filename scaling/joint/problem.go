// Package joint places the loads of several functions at once, by patterns of whole nodes
// (package packing): instances of different functions fill a node's cores and GPU best.
// It also plans exchanges of running instances for better ones. It does not measure load
// or choose candidates; its callers pass both. Begin with [Problem.Place], then
// [TryExchange].
package joint

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// These are a plan's costs. Nodes count first (Eq. 2). Of plans with equally many nodes the
// one that takes fewer resources is better: they cost shareCost of a node's. Room on nodes
// in use costs nearly as much as the same part of a new node (roomCost): if it were free,
// it would go to instances that fill it badly.
const (
	shareCost = 0.1
	roomCost  = 0.9
)

// inaccuracyCost is what each percent of inaccuracy costs, as a part of an instance's cost. It
// only decides between plans that cost the same.
const inaccuracyCost = 1e-7

// Thrift says what a plan spares.
type Thrift struct {
	// Lean plans take as few resources as possible, on at most Nodes new nodes of each kind.
	// Others take as few nodes as possible.
	Lean  bool
	Nodes int
	// Crowded plans keep no room for chance, because not all load fits anyway.
	Crowded bool
	// Work bounds the work of this plan and others.
	Work *packing.Work
}

// Demand is what one function is short of.
type Demand struct {
	// Need is in requests per second. It or a share's is above 0.
	Need float64
	// Choices are its possible instances. Configs are the candidates from which they were
	// chosen.
	Choices []capacity.Choice
	Configs []capacity.Candidate
	// Allowed is where its instances may start.
	Allowed placing.Allowed
	// Shares are the parts of Need that only some artefacts may serve.
	Shares []Share
}

// Share is a part of a demand that only some artefacts may serve.
type Share struct {
	// Artefacts has their names, sorted.
	Artefacts []string
	// Need is in requests per second, above 0.
	Need float64
}

// Problem is a demand of several functions that is placed at once.
type Problem struct {
	Thrift
	Demands []Demand
	// needs has the demands' needs and, behind them, their shares'; owners has the demand of
	// each share. items has all choices in one list.
	needs  []float64
	owners []int
	items  []packing.Item
	// oneDevice: patterns have no more than the emptiest device of a node.
	oneDevice bool
	// divided: the last plan left the GPUs of some nodes to one tenant each.
	divided bool
	// only is the tenant that a plan may leave such GPUs to, nil for any.
	only *cluster.Tenant
	// from has the first item of each demand, of the demand of each item.
	from, of []int
}

// New returns the problem of these demands.
func New(by Thrift, demands []Demand) *Problem {
	p := &Problem{Thrift: by, Demands: demands}
	share := shareCost
	if by.Lean {
		share = 1
	}
	for _, d := range demands {
		p.needs = append(p.needs, d.Need)
	}
	for k, d := range demands {
		first := len(p.needs)
		for _, s := range d.Shares {
			p.needs, p.owners = append(p.needs, s.Need), append(p.owners, k)
		}
		p.from = append(p.from, len(p.items))
		for _, c := range d.Choices {
			serves := []int{k}
			for n := range d.Shares {
				if d.Shares[n].has(c.Artefact) {
					serves = append(serves, first+n)
				}
			}
			p.items = append(p.items, packing.Item{Demands: serves, Rate: c.Range.Up, Need: c.Config.Resources, Cost: share * c.Cost * (1 + inaccuracyCost*(100-c.Accuracy))})
			p.of = append(p.of, k)
		}
	}
	return p
}

func (s *Share) has(artefact string) bool {
	_, found := slices.BinarySearch(s.Artefacts, artefact)
	return found
}

// Item returns the i-th item, as a [packing.Solution] numbers them.
func (p *Problem) Item(i int) packing.Item { return p.items[i] }

// Of returns the demand of an item.
func (p *Problem) Of(i int) int { return p.of[i] }

// Choice returns the choice of an item.
func (p *Problem) Choice(i int) *capacity.Choice {
	k := p.of[i]
	return &p.Demands[k].Choices[i-p.from[k]]
}

// Solve packs the demands into the room without changing it.
func (p *Problem) Solve(room *placing.Room) ([]Class, packing.Solution) {
	classes := p.classes(room)
	problem := packing.Problem{Demands: p.needs, Items: p.items, Work: p.Work}
	for _, c := range classes {
		problem.Classes = append(problem.Classes, c.Class)
	}
	p.divided = slices.ContainsFunc(classes, func(c Class) bool { return c.tenanted })
	if p.divided {
		p.barShares(&problem, classes)
	}
	s, err := packing.Solve(problem)
	if err != nil { // Solve refuses only numbers that no candidate has.
		return nil, packing.Solution{Served: make([]float64, len(p.needs))}
	}
	if p.divided {
		s.Served, s.Prices = s.Served[:len(p.needs)], s.Prices[:len(p.needs)]
	}
	return classes, s
}

// Place packs the demands and takes the room. It returns, per demand, the placed instances
// and the load that is left over.
func (p *Problem) Place(room *placing.Room) []placing.Placement {
	placements := make([]placing.Placement, len(p.Demands))
	classes, s := p.Solve(room)
	if !p.fill(room, classes, s, placements) || p.divided {
		p.repair(room, placements)
	}
	p.addTwins(room, placements)
	for k := range placements {
		p.explain(k, &placements[k])
	}
	return placements
}

// Divide places sets on several nodes for what the k-th demand's placement leaves over because no
// node has room, at most most of them if that is not 0. The patterns of Solve have none of these:
// a pattern is of one node.
func (p *Problem) Divide(room *placing.Room, k, most int, left *placing.Placement) {
	if left.Reason != placing.NoRoom {
		return
	}
	d := &p.Demands[k]
	placed, _ := room.Divide(d.Choices, d.Allowed, left.Residual, most)
	left.Placed, left.Reason = append(left.Placed, placed...), placing.None
	if p.explain(k, left); left.Reason == placing.NoRoom {
		left.Lack = room.Lack(d.Choices, d.Allowed)
	}
}

// lack is what a demand, or a share of it if that is not nil, is short of beside what is placed.
func (d *Demand) lack(share *Share, placed []placing.Placed) float64 {
	need := d.Need
	if share != nil {
		need = share.Need
	}
	for _, x := range placed {
		if share == nil || share.has(x.Artefact) {
			need -= x.Range.Up
		}
	}
	return need
}

// explain sets the load that a demand's placement leaves over, and the reason.
func (p *Problem) explain(k int, left *placing.Placement) {
	d := &p.Demands[k]
	left.Residual = d.lack(nil, left.Placed)
	most := d.Need
	for n := range d.Shares {
		most = max(most, d.Shares[n].Need)
		left.Residual = max(left.Residual, d.lack(&d.Shares[n], left.Placed))
	}
	switch {
	case left.Residual <= capacity.Negligible*most:
		left.Residual = 0
	case len(d.Choices) == 0:
		left.Reason, left.Fastest = placing.NoConfig, capacity.Fastest(d.Configs)
	case !d.Allowed.Any():
		left.Reason = placing.NoNode
	default:
		left.Reason = placing.NoRoom
	}
}

// put takes the room for one instance. It reports whether it fits.
func (p *Problem) put(room *placing.Room, at, item int, placements []placing.Placement) bool {
	k, c := p.of[item], p.Choice(item)
	tenant := p.Demands[k].Allowed.Tenant
	if !room.Places[at].Fits(c.Config.Resources, tenant) {
		return false
	}
	device := room.Take(at, c.Config.Resources, tenant)
	placements[k].Placed = append(placements[k].Placed, placing.Placed{Candidate: c.Candidate, Node: room.Places[at].Name, Device: device, Range: c.Range})
	return true
}
