package scaling

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Grade is one way to answer a function's requests: by artefacts of at least an accuracy, in
// percent. Cost is what the function's whole load then costs.
type Grade struct{ Accuracy, Cost float64 }

// Graded is a function that prefers accurate answers ([Function.Accurate]).
type Graded struct {
	// Load is in requests per second. It weighs the accuracy of the function's answers
	// against those of other functions.
	Load float64
	// Grades has those that the function's floor and SLO admit, in any order.
	Grades []Grade
}

// Blend says how accurate a function's answers are to be: a part of the load is answered with at
// least the accuracy Upper, the rest with at least Lower.
type Blend struct{ Upper, Lower, Part float64 }

// Mean is the least mean accuracy of a blend's answers.
func (b Blend) Mean() float64 { return b.Part*b.Upper + (1-b.Part)*b.Lower }

// upgrade is a step of a function from one grade to a better one.
type upgrade struct {
	function int
	from, to Grade
	// gain is in percent times requests per second.
	gain, cost float64
}

// MostAccurate returns, for each function, the blend with which the mean accuracy of all answers
// is the highest that a budget pays for. All load comes first: each function begins at its
// cheapest grade, whatever the budget is. Then the upgrade with the highest gain per cost comes
// next, until the budget ends in the middle of one. This is the optimum of the linear program.
//
// For example a function's load costs 1, 2 and 5 at 70, 76 and 80 %. The first upgrade gains 6
// points for 1, the second 4 points for 3. A budget of 3.5 pays for half of the second: a half
// of the answers has 80 %, the rest 76 %.
func MostAccurate(functions []Graded, budget float64) []Blend {
	blends := make([]Blend, len(functions))
	var upgrades []upgrade
	for i, f := range functions {
		steps := hull(f.Grades)
		if len(steps) == 0 {
			continue
		}
		blends[i] = Blend{steps[0].Accuracy, steps[0].Accuracy, 1}
		budget -= steps[0].Cost
		for k, to := range steps[1:] {
			upgrades = append(upgrades, upgrade{i, steps[k], to, f.Load * (to.Accuracy - steps[k].Accuracy), to.Cost - steps[k].Cost})
		}
	}
	slices.SortStableFunc(upgrades, func(a, b upgrade) int { return cmp.Compare(b.gain*a.cost, a.gain*b.cost) })
	for _, u := range upgrades {
		part := 1.0
		if u.cost > 0 {
			part = min(1, max(0, budget)/u.cost)
		}
		if part == 0 {
			break
		}
		blends[u.function] = Blend{u.to.Accuracy, u.from.Accuracy, part}
		if budget -= part * u.cost; part < 1 {
			break
		}
	}
	return blends
}

// hull returns the cheapest grade, of equal ones the most accurate, and those above it between
// which no blend of two others is better: each gains less per cost than the one before.
func hull(grades []Grade) (steps []Grade) {
	sorted := slices.Clone(grades)
	slices.SortFunc(sorted, func(a, b Grade) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(b.Accuracy, a.Accuracy))
	})
	for _, g := range sorted {
		if n := len(steps); n > 0 && g.Accuracy <= steps[n-1].Accuracy {
			continue
		}
		for n := len(steps); n > 1; n = len(steps) {
			a, b := steps[n-2], steps[n-1]
			if (b.Accuracy-a.Accuracy)*(g.Cost-a.Cost) > (g.Accuracy-a.Accuracy)*(b.Cost-a.Cost) {
				break
			}
			steps = steps[:n-1]
		}
		steps = append(steps, g)
	}
	return steps
}

// blendOf returns the blend of two neighbouring grades of a hull with a mean accuracy.
func blendOf(hull []Grade, mean float64) Blend {
	for i := len(hull) - 2; i >= 0; i-- {
		if upper, lower := hull[i+1].Accuracy, hull[i].Accuracy; mean > lower {
			return Blend{upper, lower, min(1, (mean-lower)/(upper-lower))}
		}
	}
	return Blend{hull[0].Accuracy, hull[0].Accuracy, 1}
}

const (
	// minRise is the least rise of a function's mean accuracy, as a part of the way to the
	// best grade, for which instances start.
	minRise = 0.1
	// riseSteps is how many rises are tried, each half of the one before.
	riseSteps = 4
)

// prefer sets how accurate the answers of functions are to be that prefer accuracy: it adds sets
// of artefacts that must carry a part of the load. They are no reason to leave load unserved:
// lenient removes them if they do not fit.
//
// The budget is what the nodes have, less what the other functions hold. The accuracy falls at
// once, since the load does not fit otherwise. It rises at most once a window, as far as there
// is room beside the instances that run, and not if load was left unplaced meanwhile: what is
// free is for that.
func prefer(p *pass) {
	views, functions, budget := preferring(p)
	window := p.engine.settings.Stabilisation
	for i, aim := range MostAccurate(functions, budget) {
		v, m, steps := views[i], &views[i].memory.preference, hull(functions[i].Grades)
		if len(steps) == 0 {
			continue
		}
		mean, best := aim.Mean(), steps[len(steps)-1].Accuracy
		rise := mean - max(m.mean, steps[0].Accuracy)
		switch {
		case rise <= 0:
			m.mean = mean
		case !m.at.IsZero() && p.now.Sub(m.at) < window, p.now.Sub(p.engine.crowded) < window, rise < minRise*(best-mean+rise) && mean < best:
		default:
			raise(p, v, steps, mean, rise)
		}
		insist(v, blendOf(steps, m.mean))
	}
}

// raise raises v's accuracy to a mean, or by a part of the rise if there is no room for more.
func raise(p *pass, v *view, steps []Grade, mean, rise float64) {
	m, before := &v.memory.preference, v.sets
	m.at = p.now
	for range riseSteps {
		insist(v, blendOf(steps, mean))
		t := p.ask([]*view{v}, joint.Thrift{Lean: true, Nodes: len(p.space().Places)}, func(v *view) shortage {
			return shortage{v.wholeResidual(), shareNeeds(v, v.lack)}
		})
		placements := t.Place(p.space().Clone())
		v.sets = before
		if len(placements) == 0 || placements[0].Reason == placing.None {
			m.mean = mean
			return
		}
		rise /= 2
		mean -= rise
	}
}

// preferring returns the functions that prefer accuracy and have a choice, and what the others
// leave to them.
func preferring(p *pass) (views []*view, functions []Graded, budget float64) {
	gpus := false
	for _, v := range p.views {
		if v.Accurate && v.joint && !v.retired && various(v.Configs) {
			views, functions = append(views, v), append(functions, Graded{loaded(v), grades(v)})
			gpus = gpus || slices.ContainsFunc(v.Configs, func(c capacity.Candidate) bool { return c.Config.GPU > 0 })
		}
	}
	if len(views) == 0 {
		return nil, nil, 0
	}
	weigh := func(r cluster.Resources) float64 {
		if !gpus { // They cannot use one.
			r.GPU = 0
		}
		return p.engine.settings.Weigh(r)
	}
	for _, n := range p.nodes {
		budget += fullNode * weigh(cluster.Resources{CPU: n.Total.CPU - n.Others.CPU, GPU: n.Total.GPU - n.Others.GPU})
	}
	for _, v := range p.views {
		if slices.Contains(views, v) {
			continue
		}
		for i := range v.Instances {
			budget -= weigh(v.Instances[i].Holds())
		}
	}
	return views, functions, budget
}

// loaded is the load by which a function's grades are compared.
func loaded(v *view) float64 { return max(v.top, v.demand, capacity.SomeLoad) }

// grades lists the accuracies of v's choices, each with what the load costs if no less accurate
// one serves.
func grades(v *view) (all []Grade) {
	load := loaded(v)
	choices := v.choices(load, false)
	for _, at := range choices {
		if slices.ContainsFunc(all, func(g Grade) bool { return g.Accuracy == at.Accuracy }) {
			continue
		}
		least := math.Inf(1)
		for _, c := range choices {
			if c.Accuracy >= at.Accuracy {
				least = min(least, c.Cost*max(1, load/c.Range.Up))
			}
		}
		all = append(all, Grade{at.Accuracy, least})
	}
	return all
}

// insist adds the sets of artefacts that carry a blend, except for requests that none of them may
// answer.
func insist(v *view, b Blend) {
	for _, s := range []struct{ accuracy, part float64 }{{b.Upper, b.Part}, {b.Lower, 1}} {
		own := set{part: s.part, lenient: true}
		for _, c := range v.Configs {
			if c.Accuracy >= s.accuracy && !slices.Contains(own.artefacts, c.Artefact) {
				own.artefacts = append(own.artefacts, c.Artefact)
			}
		}
		slices.Sort(own.artefacts)
		for i := range v.sets {
			if other := &v.sets[i]; !other.lenient && !slices.ContainsFunc(other.artefacts, own.has) {
				own.part = min(own.part, 1-other.part)
			}
		}
		all := !slices.ContainsFunc(v.Configs, func(c capacity.Candidate) bool { return !own.has(c.Artefact) })
		if own.part > 0 && len(own.artefacts) > 0 && !all {
			v.sets = append(v.sets, own)
		}
	}
}

// strict reports whether v has sets that must carry their part in any case.
func strict(v *view) bool {
	return slices.ContainsFunc(v.sets, func(s set) bool { return !s.lenient })
}

// yields removes what the views only prefer if not everything fits. It reports whether there was
// such a thing.
func (t *together) yields(placements []placing.Placement) (yielded bool) {
	if !slices.ContainsFunc(placements, func(x placing.Placement) bool { return x.Reason == placing.NoRoom }) {
		return false
	}
	for _, v := range t.views {
		yielded = yield(v) || yielded
	}
	return yielded
}

// yield removes what v only prefers. It reports whether there was such a thing.
func yield(v *view) bool {
	before := len(v.sets)
	v.sets = slices.DeleteFunc(v.sets, func(s set) bool { return s.lenient })
	v.yielded = v.yielded || len(v.sets) < before
	return len(v.sets) < before
}
