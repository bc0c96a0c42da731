package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
)

// shareCost is what an instance's resources cost in a plan for many functions,
// as a part of what a node's do: nodes count first (Eq. 2), and of plans with as
// many nodes the one that takes less of them is better.
const shareCost = 0.1

// together is a demand of several functions that is placed at once.
type together struct {
	pass  *pass
	views []*view
	// demands are what the views need, choices what each may have, and items
	// all of these in one list.
	demands []float64
	choices [][]choice
	items   []packing.Item
	// from is the first item of each view.
	from []int
}

// ask begins a demand of the views, as much as each is short of.
func (p *pass) ask(views []*view, short func(v *view) float64) *together {
	t := &together{pass: p}
	for _, v := range views {
		need := short(v)
		if need <= 0 {
			continue
		}
		cs := p.engine.settings.choices(v.wanted(need))
		t.views, t.choices, t.from = append(t.views, v), append(t.choices, cs), append(t.from, len(t.items))
		for _, c := range cs {
			t.items = append(t.items, packing.Item{
				Demand: len(t.demands), Rate: c.bounds.Up, Need: c.Config.Resources, Cost: shareCost * c.cost,
			})
		}
		t.demands = append(t.demands, need)
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

// classes groups the places by what they have free, as far as something fits.
// Places that hold something already cost nothing more.
func (t *together) classes(room *room) []class {
	type kind struct {
		free cluster.Resources
		used bool
	}
	index := map[kind]int{}
	var all []class
	for i := range room.places {
		p := &room.places[i]
		k := kind{p.free, p.used}
		n, known := index[k]
		if !known {
			n = -1
			if slices.ContainsFunc(t.items, func(it packing.Item) bool { return it.Need.Fits(p.free) }) {
				n = len(all)
				c := class{Class: packing.Class{Free: p.free}}
				if !p.used {
					c.Cost = room.options.weigh(p.free)
				}
				all = append(all, c)
			}
			index[k] = n
		}
		if n >= 0 {
			all[n].places = append(all[n].places, i)
			all[n].Count++
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
		t := p.ask(views, func(v *view) float64 {
			switch {
			case limited[v] || v.robbed || v.short != None:
				return 0
			case v.count() == 0:
				return max(v.demand, someLoad)
			}
			return v.residual()
		})
		if len(t.views) == 0 {
			return
		}
		trial := p.space().clone()
		placements := t.place(trial)
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

// residual is the load that the function's instances cannot take.
func (v *view) residual() float64 {
	if residual := v.demand - v.capacity(); residual > negligible*v.demand {
		return residual
	}
	return 0
}
