package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
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

// thrift says what a plan spares.
type thrift struct {
	// lean plans take as few resources as they can, on no more than nodes new
	// nodes; others take as few nodes as they can.
	lean  bool
	nodes int
	// crowded plans have no room for all load anyway.
	crowded bool
}

// together is a demand of several functions that is placed at once.
type together struct {
	thrift
	pass  *pass
	views []*view
	// demands are what the views need, choices what each may have, and items
	// all of these in one list.
	demands []float64
	choices [][]choice
	items   []packing.Item
	// from is the first item of each view.
	from []int
	// allowed is where the instances of each view may start.
	allowed []allowed
}

// ask begins a demand of the views, as much as each is short of.
func (p *pass) ask(views []*view, by thrift, short func(v *view) float64) *together {
	t := &together{pass: p, thrift: by}
	share := shareCost
	if by.lean {
		share = 1
	}
	for _, v := range views {
		need := short(v)
		if need <= 0 {
			continue
		}
		cs := v.choices(need, by.crowded)
		t.views, t.choices, t.from = append(t.views, v), append(t.choices, cs), append(t.from, len(t.items))
		for _, c := range cs {
			t.items = append(t.items, packing.Item{
				Demand: len(t.demands), Rate: c.bounds.Up, Need: c.Config.Resources, Cost: share * c.cost,
			})
		}
		t.demands, t.allowed = append(t.demands, need), append(t.allowed, p.allowed(v))
	}
	return t
}

// class is a kind of nodes for a plan, with the places that are of it.
type class struct {
	packing.Class
	places []int
}

// maxClasses bounds how many kinds of nodes a plan tells apart. Kinds with
// little room come last.
const maxClasses = 40

// classes groups the places by what they have free and who may be there, as far as
// something fits. Places that hold something already cost nothing more.
func (t *together) classes(room *room) []class {
	type kind struct {
		free cluster.Resources
		used bool
		zone int
	}
	index := map[kind]int{}
	var all []class
	zone, barred := t.zones(len(room.places))
	fresh := 0
	for i := range room.places {
		p := &room.places[i]
		k := kind{p.free, p.used, zone[i]}
		n, known := index[k]
		if !known {
			n = -1
			if t.fits(p.free, barred[k.zone]) {
				n = len(all)
				all = append(all, class{Class: packing.Class{Free: p.free, Cost: t.cost(room, p), Barred: barred[k.zone]}})
			}
			index[k] = n
		}
		if n >= 0 && (p.used || !t.lean || fresh < t.nodes) {
			all[n].places = append(all[n].places, i)
			all[n].Count++
			if !p.used {
				fresh++
			}
		}
	}
	if len(all) > maxClasses {
		slices.SortStableFunc(all, func(a, b class) int {
			return -compareFloat(room.options.weigh(a.Free)*float64(a.Count), room.options.weigh(b.Free)*float64(b.Count))
		})
		all = all[:maxClasses]
	}
	return all
}

// cost is what it costs to use a place at all. A used place's room is as large as
// the part of the whole of which least is left.
func (t *together) cost(room *room, p *place) float64 {
	whole := room.options.weigh(p.total)
	switch {
	case t.lean && p.used:
		return 0
	case t.lean:
		return shareCost * shareCost * whole
	case !p.used:
		return whole
	}
	part := 1.0
	if p.total.CPU > 0 {
		part = min(part, float64(p.free.CPU)/float64(p.total.CPU))
	}
	if p.total.GPU > 0 && p.free.GPU > 0 {
		part = min(part, float64(p.free.GPU)/float64(p.total.GPU))
	}
	return roomCost * max(0, part) * whole
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// solve packs the demand into the room, which is left as it is.
func (t *together) solve(room *room) ([]class, packing.Solution) {
	classes := t.classes(room)
	problem := packing.Problem{Demands: t.demands, Items: t.items}
	for _, c := range classes {
		problem.Classes = append(problem.Classes, c.Class)
	}
	s, err := packing.Solve(problem)
	if err != nil { // Only numbers that no candidate has could be refused.
		return nil, packing.Solution{Served: make([]float64, len(t.demands))}
	}
	return classes, s
}

// place packs the demand and takes the room. It returns, per view, what was
// placed and what is left over.
func (t *together) place(room *room) []Placement {
	placements := make([]Placement, len(t.views))
	classes, s := t.solve(room)
	next := make([]int, len(classes))
	for _, f := range s.Filled {
		for range f.Count {
			at := classes[f.Class].places[next[f.Class]]
			next[f.Class]++
			for _, u := range f.Uses {
				for range u.Count {
					t.put(room, at, u.Item, placements)
				}
			}
		}
	}
	for k := range placements {
		p := &placements[k]
		p.Residual = t.demands[k]
		for _, x := range p.Placed {
			p.Residual -= x.Range.Up
		}
		switch {
		case p.Residual <= negligible*t.demands[k]:
			p.Residual = 0
		case len(t.choices[k]) == 0:
			p.Reason, p.Fastest = NoConfig, fastest(t.views[k].Configs)
		case !t.allowed[k].any():
			p.Reason = NoNode
		default:
			p.Reason = NoRoom
		}
	}
	return placements
}

// put takes the room for one instance, if it is there.
func (t *together) put(room *room, at, item int, placements []Placement) {
	k := t.items[item].Demand
	c := &t.choices[k][item-t.from[k]]
	if !c.Config.Resources.Fits(room.places[at].free) {
		return
	}
	room.take(at, c.Config.Resources)
	placements[k].Placed = append(placements[k].Placed, Placed{Candidate: c.Candidate, Node: room.places[at].name, Range: c.bounds})
}

// jointly is case (i) of §3.2 for all late-bound functions at once, first
// instances included. Functions that would get more instances than they may have,
// and those that would not even get a first, are placed before the others, by
// Algorithm 1, which knows limits and evicts.
func (p *pass) jointly(views []*view) {
	limited := map[*view]bool{}
	for {
		need := func(v *view) float64 {
			switch {
			case limited[v] || v.robbed || v.short != None:
				return 0
			case v.count() == 0:
				return max(v.demand, someLoad)
			}
			return v.residual()
		}
		if !slices.ContainsFunc(views, func(v *view) bool { return need(v) > 0 }) {
			return
		}
		t, trial, placements := p.trial(views, need)
		fits := true
		for k, v := range t.views {
			switch n := len(placements[k].Placed); {
			case v.count()+n == 0:
				fits = false
				p.first(v)
			case v.Max > 0 && v.count()+n > v.Max:
				limited[v], fits = true, false
				if p.first(v); v.mayGrow() {
					p.alone(v)
				}
			}
		}
		if !fits {
			continue
		}
		p.room = trial
		for k, v := range t.views {
			p.start(v, placements[k].Placed)
			if placements[k].Reason != None {
				p.unplaced(v, placements[k])
			}
		}
		return
	}
}

// trial places what the views need in a copy of the room: with as few resources
// as can be while few nodes are used, else, or if that does not serve all, on as
// few nodes as can be. If not even the load itself finds room then with what is
// kept for chance, nothing is kept, where that serves more.
func (p *pass) trial(views []*view, need func(*view) float64) (*together, *room, []Placement) {
	lean := p.lean(views)
	for {
		t, trial := p.ask(views, lean, need), p.space().clone()
		placements := t.place(trial)
		switch {
		case !slices.ContainsFunc(placements, func(x Placement) bool { return x.Reason == NoRoom }):
			return t, trial, placements
		case lean.lean:
			lean = thrift{}
			continue
		case !t.isCrowded(placements):
			return t, trial, placements
		}
		if other, room, instead, better := p.filled(views, t, placements, need); better {
			return other, room, instead
		}
		return t, trial, placements
	}
}

// residual is the load that the function's instances cannot take. One that rests has
// none, whatever was measured.
func (v *view) residual() float64 {
	if v.resting {
		return 0
	}
	if residual := v.demand - v.capacity(); residual > negligible*v.demand {
		return residual
	}
	return 0
}
