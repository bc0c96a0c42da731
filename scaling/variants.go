package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// minSaved is the part of its resources that a function must save to change its artefacts.
const minSaved = 0.2

// departure is a change of a function's artefacts (variants of its model) that is under way:
// INFaaS' upgrade and downgrade (§4.2).
type departure struct {
	// from are the artefacts that the function leaves, at is when it began to.
	from []string
	at   time.Time
}

// leaves reports whether the function leaves an artefact. Its instances then count as those
// of an older revision: they serve until others are ready.
func (d *departure) leaves(artefact string) bool { return slices.Contains(d.from, artefact) }

// depart ends a departure after a window. Until then it takes the artefacts that the function
// leaves out of its configs.
func (v *view) depart(now time.Time) {
	d := &v.memory.departure
	if d.from == nil {
		return
	}
	if now.Sub(d.at) >= v.engine.settings.Stabilisation {
		d.from = nil
		return
	}
	others := slices.DeleteFunc(slices.Clone(v.Configs), func(c capacity.Candidate) bool { return d.leaves(c.Artefact) })
	if len(others) == 0 { // A deployment has taken the others away.
		d.from = nil
		return
	}
	v.Configs = others
}

// reconsider changes a function's artefacts if a fresh plan with others, for the highest load
// of the window, saves minSaved of the resources, or costs no more and is more accurate. There
// must be room for it beside the running instances, since the new ones start first. Where there
// is none and the function has too little, exchange and rearrange do the same. It looks once a
// window and only while nothing else changes.
//
// For example a variant takes 4 ms for what another does in 2 ms. At 1 request/s both need the
// smallest share, so the more accurate serves. At 400/s they need 1.6 and 0.8 cores plus room
// for chance, and the faster one replaces it.
func (p *pass) reconsider(v *view) {
	window := p.engine.settings.Stabilisation
	if !v.joint || len(v.live) == 0 || v.short != placing.None || v.resting || v.retired || v.prewarm || !v.calm() || !various(v.Configs) ||
		!p.allowed(v).Any() || p.now.Sub(v.memory.departure.at) < window || !v.memory.Settled(p.now, window) {
		return
	}
	v.memory.departure.at = p.now
	own := p.space().Clone()
	for _, in := range v.live {
		if i, ok := own.Find(in.Node); ok {
			own.Give(i, in.Config.Resources, in.ID)
		}
	}
	choices := v.choices(v.peak, false)
	present := slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool {
		return !slices.ContainsFunc(v.live, func(in Running) bool { return in.Artefact == c.Artefact })
	})
	before, after := p.fresh(v, present, own.Clone()), p.fresh(v, choices, own)
	if !after.better(before) {
		return
	}
	var from []string
	for _, in := range v.live {
		if !after.uses(in.Artefact) && !slices.Contains(from, in.Artefact) {
			from = append(from, in.Artefact)
		}
	}
	others := slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool { return slices.Contains(from, c.Artefact) })
	if len(from) == 0 || !p.fresh(v, others, p.space().Clone()).serves {
		return
	}
	v.memory.departure.from = from
}

// various reports whether candidates have different artefacts.
func various(configs []capacity.Candidate) bool {
	return slices.ContainsFunc(configs, func(c capacity.Candidate) bool { return c.Artefact != configs[0].Artefact })
}

// alternative is a fresh plan for one function.
type alternative struct {
	placed []placing.Placed
	// cost is in βc + g, accuracy the mean over the served requests in percent. serves: the
	// plan has room for all load.
	cost, accuracy float64
	serves         bool
}

// fresh plans for v's highest load of the window with some choices, in a room that it takes.
func (p *pass) fresh(v *view, choices []capacity.Choice, room *placing.Room) alternative {
	problem := joint.New(joint.Thrift{Lean: true, Nodes: len(room.Places)}, []joint.Demand{{
		Need: max(v.peak, capacity.SomeLoad), Choices: choices, Configs: v.Configs, Allowed: p.allowed(v),
	}})
	placement := problem.Place(room)[0]
	a := alternative{placed: placement.Placed, serves: placement.Reason == placing.None}
	rate := 0.0
	for _, x := range placement.Placed {
		a.cost += p.engine.settings.Weigh(x.Config.Resources)
		a.accuracy += x.Accuracy * x.Range.Up
		rate += x.Range.Up
	}
	if rate > 0 {
		a.accuracy /= rate
	}
	return a
}

// better reports whether a plan is enough better than the one before to load other artefacts.
func (a alternative) better(before alternative) bool {
	switch {
	case !a.serves:
		return false
	case !before.serves:
		return true
	}
	return a.cost <= (1-minSaved)*before.cost || a.cost <= (1+capacity.Negligible)*before.cost && a.accuracy > before.accuracy+capacity.Negligible
}

// uses reports whether the plan has an instance of an artefact.
func (a alternative) uses(artefact string) bool {
	return slices.ContainsFunc(a.placed, func(x placing.Placed) bool { return x.Artefact == artefact })
}

// current reports whether an instance is of the current revision and of an artefact that the
// function does not leave.
func (v *view) current(in *Running) bool {
	return in.Revision >= v.Revision && !v.memory.departure.leaves(in.Artefact)
}
