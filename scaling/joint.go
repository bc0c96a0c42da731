package scaling

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// together is a demand of several functions that is placed at once.
type together struct {
	*joint.Problem
	// views has the views that are short of something, one for each demand.
	views []*view
}

// shortage is what a function is short of: in all, and of the artefacts that alone may answer
// some requests.
type shortage struct {
	whole  float64
	shares []joint.Share
}

func (s shortage) any() bool { return s.whole > 0 || len(s.shares) > 0 }

// ask returns the demand of the views, each for as much as it is short of.
func (p *pass) ask(views []*view, by joint.Thrift, short func(v *view) shortage) *together {
	t := &together{}
	by.Work = p.work
	var demands []joint.Demand
	for _, v := range views {
		if need := short(v); need.any() {
			d := p.demand(v, need.whole, by.Crowded)
			d.Shares = need.shares
			t.views, demands = append(t.views, v), append(demands, d)
		}
	}
	t.Problem = joint.New(by, demands)
	return t
}

// demand returns v's demand of rps requests per second.
func (p *pass) demand(v *view, rps float64, crowded bool) joint.Demand {
	d := joint.Demand{Need: rps, Choices: v.choices(rps, crowded), Configs: v.Configs, Allowed: p.allowed(v)}
	if v.count() == 0 && v.Waiting == 0 && rps <= capacity.SomeLoad && len(v.sets) == 0 {
		d.Need, d.Choices = single(d.Need, d.Choices)
	}
	return d
}

// single returns the part of a need that one instance meets, and the choices of which one is enough for
// that. A function without load and without a request that waits gets one first instance: of two, one would
// be in excess as soon as the load is known. Where a request waits, others mostly follow. The one instance
// meets the whole need, unless smaller instances that do so together cost less: then it is one of those.
//
// For example 1 request/s is needed, of which 250m serve 0.7 and 500m serve 1.8. One instance of 500m costs no
// more than two of 250m, so it is chosen. If less than 1750m served below 1/s, two of 250m would be the
// cheapest, and one of them would be chosen.
func single(need float64, choices []capacity.Choice) (float64, []capacity.Choice) {
	least, fewest, part := math.Inf(1), math.Inf(1), need
	for _, c := range choices {
		n := math.Ceil(need/c.Range.Up - capacity.Negligible)
		cost := n * c.Cost
		if same := math.Abs(cost-least) <= capacity.Negligible*cost; same && n < fewest || !same && cost < least {
			least, fewest, part = cost, n, min(need, c.Range.Up)
		}
	}
	return part, slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool { return c.Range.Up < part })
}

// least is how few empty nodes could hold the whole load of all views. Of thousands of views, few show
// that these are many.
func (p *pass) least(views []*view) float64 {
	var demands []joint.Demand
	few := joint.Few(p.space())
	for _, v := range views {
		if !p.allowed(v).Any() {
			continue
		}
		d := p.demand(v, max(v.demand, capacity.SomeLoad), false)
		d.Shares = shareNeeds(v, func(s *set) float64 { return s.demandOf(v.demand) })
		if few -= d.Cores(); few < 0 {
			return math.Inf(1)
		}
		demands = append(demands, d)
	}
	return joint.New(joint.Thrift{Work: p.work}, demands).Least(p.space())
}

// jointly is case (i) of §3.2 for all late-bound functions at once, first instances
// included. It places two kinds of functions before the others, by Algorithm 1, which
// respects limits and evicts: those that would get more instances than Max, and those
// that would not even get a first.
func (p *pass) jointly(views []*view) {
	limited := map[*view]bool{}
	for least := -1.0; ; {
		need := func(v *view) shortage {
			switch {
			case limited[v] || v.yielding || v.short != placing.None:
				return shortage{}
			case v.count() == 0:
				return shortage{max(v.demand, capacity.SomeLoad), shareNeeds(v, v.lack)}
			}
			return shortage{v.wholeResidual(), shareNeeds(v, v.lack)}
		}
		if !slices.ContainsFunc(views, func(v *view) bool { return need(v).any() }) {
			return
		}
		if least < 0 {
			least = p.least(views)
		}
		t, trial, placements := p.trial(views, least, need)
		if t.yields(placements) {
			continue
		}
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
			widen(p, v, placements[k].Placed)
			p.start(v, placements[k].Placed, whyStart(v))
			if placements[k].Reason != placing.None {
				p.unplaced(v, placements[k])
			}
		}
		return
	}
}

// trial places what the views need in a copy of the room. While few nodes are used it
// takes as few resources as possible. Otherwise, or if that does not serve all, it takes
// as few nodes as possible. If not even the load itself then fits with room for chance,
// it keeps no such room, as far as that serves more. least is how few nodes could hold all load.
func (p *pass) trial(views []*view, least float64, need func(*view) shortage) (*together, *placing.Room, []placing.Placement) {
	lean := joint.Lean(p.space(), least)
	for {
		t, trial := p.ask(views, lean, need), p.space().Clone()
		placements := t.place(trial)
		switch {
		case !slices.ContainsFunc(placements, func(x placing.Placement) bool { return x.Reason == placing.NoRoom }):
			return t, trial, placements
		case lean.Lean:
			lean = joint.Thrift{}
			continue
		case !t.isCrowded(placements):
			return t, trial, placements
		}
		if other, room, instead, better := p.packedPlan(views, t, placements, need); better {
			return other, room, instead
		}
		return t, trial, placements
	}
}

// place packs the demands, and places sets on several nodes where no single one has room. A lean
// plan does not: with more nodes there may be one.
func (t *together) place(room *placing.Room) []placing.Placement {
	placements := t.Place(room)
	for k, v := range t.views {
		most := 0
		if v.Max > 0 {
			most = v.Max - v.count() - len(placements[k].Placed)
		}
		if !t.Lean && most >= 0 && (v.Max == 0 || most > 0) {
			t.Divide(room, k, most, &placements[k])
		}
	}
	return placements
}

// residual is the load that the function's instances cannot take. A resting function has
// none, whatever was measured.
func (v *view) residual() float64 {
	residual := v.wholeResidual()
	for i := range v.sets {
		if !v.resting {
			residual = max(residual, v.lack(&v.sets[i]))
		}
	}
	return residual
}

// wholeResidual is residual without regard to classes.
func (v *view) wholeResidual() float64 {
	if v.resting || v.demand == 0 {
		return 0
	}
	if residual := v.demand - v.capacity(); residual > capacity.Negligible*v.demand {
		return residual
	}
	return 0
}
