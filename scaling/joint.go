package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// together is a demand of several functions that is placed at once.
type together struct {
	*joint.Problem
	// views are those that are short of something, a demand each.
	views []*view
}

// ask begins a demand of the views, as much as each is short of.
func (p *pass) ask(views []*view, by joint.Thrift, short func(v *view) float64) *together {
	t := &together{}
	var demands []joint.Demand
	for _, v := range views {
		if need := short(v); need > 0 {
			t.views, demands = append(t.views, v), append(demands, p.demand(v, need, by.Crowded))
		}
	}
	t.Problem = joint.New(by, demands)
	return t
}

// demand is v's, of so many requests per second.
func (p *pass) demand(v *view, rps float64, crowded bool) joint.Demand {
	return joint.Demand{Need: rps, Choices: v.choices(rps, crowded), Configs: v.Configs, Allowed: p.allowed(v)}
}

// all is what everything that the views are asked for would take.
func (p *pass) all(views []*view) *joint.Problem {
	return p.ask(views, joint.Thrift{}, func(v *view) float64 {
		if !p.allowed(v).Any() {
			return 0
		}
		return max(v.demand, capacity.SomeLoad)
	}).Problem
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
			case limited[v] || v.robbed || v.short != placing.None:
				return 0
			case v.count() == 0:
				return max(v.demand, capacity.SomeLoad)
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
			if placements[k].Reason != placing.None {
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
func (p *pass) trial(views []*view, need func(*view) float64) (*together, *placing.Room, []placing.Placement) {
	lean := joint.Lean(p.space(), func() *joint.Problem { return p.all(views) })
	for {
		t, trial := p.ask(views, lean, need), p.space().Clone()
		placements := t.Place(trial)
		switch {
		case !slices.ContainsFunc(placements, func(x placing.Placement) bool { return x.Reason == placing.NoRoom }):
			return t, trial, placements
		case lean.Lean:
			lean = joint.Thrift{}
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
	if residual := v.demand - v.capacity(); residual > capacity.Negligible*v.demand {
		return residual
	}
	return 0
}
