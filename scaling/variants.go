package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// minSaved is the part of its resources that a function must save to exchange instances that serve.
const minSaved = 0.2

// reconsider exchanges a function's instances for others of another form if a fresh plan, for the
// highest load of the window, saves minSaved of the resources, or costs no more and is more
// accurate. There must be room for the new ones beside those that run, since they start first.
// Where there is none and the function has too little, exchange and rearrange do the same. It
// looks again after the time in which an exchange pays, and only while nothing else changes. A
// function with a set over several nodes keeps what it has: its fresh plans are of single nodes.
//
// For example a variant takes 4 ms for what another does in 2 ms. At 1 request/s both need the
// smallest share, so the more accurate serves. At 400/s they need 1.6 and 0.8 cores plus room
// for chance, and the faster one replaces it.
func reconsider(p *pass, v *view) {
	if v.memory.departure.from != nil && p.now.Sub(v.memory.departure.at) >= p.engine.settings.Stabilisation {
		v.memory.departure.from = nil
	}
	window := v.memory.payback(p.engine.settings.Burst, p.engine.settings.Stabilisation)
	if !v.joint || len(v.live) == 0 || v.short != placing.None || v.resting || v.retired || v.prewarm || v.yielded || !v.calm(false) ||
		p.now.Sub(v.memory.departure.at) < window || !v.memory.Settled(p.now, window) || !various(v.Configs) || !p.allowed(v).Any() ||
		slices.ContainsFunc(v.live, func(in Running) bool { return in.Nodes != nil }) || !p.engine.turns.take(v.Name) {
		return
	}
	v.memory.departure = departure{at: p.now}
	own := p.space().Clone()
	for _, in := range v.live {
		if i, ok := own.Find(in.Node); ok {
			own.Give(i, in.Config.Resources, in.Device, in.ID)
		}
	}
	choices, load := v.choices(v.top, false), max(v.top, capacity.SomeLoad)
	running := slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool {
		return !slices.ContainsFunc(v.live, func(in Running) bool { return in.Artefact == c.Artefact })
	})
	before, after := fresh(p, v, load, running, own.Clone()), fresh(p, v, load, choices, own)
	before.cost = max(before.cost, present(p, v))
	if !after.better(before) {
		return
	}
	from, stays := v.beyond(after)
	if len(from) == 0 {
		return
	}
	beside := fresh(p, v, max(load-stays, capacity.SomeLoad), choices, p.space().Clone())
	if beside.serves && (v.Max <= 0 || v.count()+len(beside.placed) <= v.Max) {
		slices.Sort(from)
		v.memory.departure.from = from
	}
}

// payback is the time in which a start pays: the new instances hold their resources while they
// load, and then save minSaved of as much. It is at least least, and at most the window. For example instances that
// load in 4 s pay within 4 s / 0.2 = 20 s.
func (m *patience) payback(least, window time.Duration) time.Duration {
	if m.loading <= 0 || least <= 0 {
		return window
	}
	return min(window, max(least, time.Duration(float64(m.loading)/minSaved)))
}

// form is what distinguishes instances for an exchange: what they load, their share of a GPU, how
// many members they have and how many batches they execute at the same time. A CPU quota changes without one, and the memory follows from the rest.
type form struct {
	artefact    string
	gpu         int
	gpuMemory   int64
	parts       int
	concurrency int
	apart       bool
}

func formOf(c *capacity.Candidate) form {
	return form{c.Artefact, c.Config.GPU, c.Config.GPUMemory, c.Config.Members(), c.Config.Streams(), c.Config.Apart}
}

// beyond lists the instances of forms that serve more than a plan has for these, and what the
// others serve.
func (v *view) beyond(plan alternative) (from []cluster.InstanceID, stays float64) {
	over := map[form]float64{}
	of := func(in *Running) form { c := in.with(); return formOf(&c) }
	for i := range v.live {
		over[of(&v.live[i])] += v.peaked(&v.live[i]).Up
	}
	for i := range plan.placed {
		over[formOf(&plan.placed[i].Candidate)] -= plan.placed[i].Range.Up
	}
	for i := range v.live {
		in := &v.live[i]
		up := v.peaked(in).Up
		if over[of(in)] < (1-minSaved)*up {
			stays += up
			continue
		}
		over[of(in)] -= up
		from = append(from, in.ID)
	}
	return from, stays
}

// present is what v's instances cost, without the part that is more than the highest load of
// the window needs: that goes by itself.
func present(p *pass, v *view) (cost float64) {
	for i := range v.live {
		cost += p.engine.settings.Weigh(v.live[i].Config.Resources)
	}
	return cost * min(1, v.top/max(v.high().Up, capacity.SomeLoad))
}

// various reports whether candidates have different forms.
func various(configs []capacity.Candidate) bool {
	return slices.ContainsFunc(configs, func(c capacity.Candidate) bool { return formOf(&c) != formOf(&configs[0]) })
}

// alternative is a fresh plan for one function.
type alternative struct {
	placed []placing.Placed
	// cost is in βc + g, accuracy the mean over the served requests in percent. serves: the
	// plan has room for all load.
	cost, accuracy float64
	serves         bool
}

// fresh plans for a load of v with some choices, in a room that it takes.
func fresh(p *pass, v *view, load float64, choices []capacity.Choice, room *placing.Room) alternative {
	problem := joint.New(joint.Thrift{Lean: true, Nodes: len(room.Places)}, []joint.Demand{{
		Need: load, Choices: choices, Configs: v.Configs, Allowed: p.allowed(v),
		Shares: shareNeeds(v, func(s *set) float64 { return s.demandOf(load) }),
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

// better reports whether a plan is enough better than the one before to load other instances.
func (a alternative) better(before alternative) bool {
	switch {
	case !a.serves:
		return false
	case !before.serves:
		return true
	}
	return a.cost <= (1-minSaved)*before.cost || a.cost <= (1+capacity.Negligible)*before.cost && a.accuracy > before.accuracy+capacity.Negligible
}
