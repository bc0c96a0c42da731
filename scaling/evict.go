package scaling

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// shadowTier is the tier of shadows: their bodies serve without them.
const shadowTier = -1

// evict makes room for one instance of v, which has none, on the node where that costs
// least, or for a set that no node can hold, on several (evictForSet). It reports whether
// there is room now. It stops in this order, as far as needed:
//
//   - the shadows that help least, v's own included;
//   - the idle instances that are worth least (see worth), parked or not;
//   - instances of functions that keep another one; these finish their requests first;
//   - v's own instances of an older revision.
//
// Functions with waiting requests keep their idle instances, and all keep Min. An idle
// instance has a least lifetime: see view.patient. Pre-warming, and replacing a revision
// without load, take nothing from others.
func (p *pass) evict(v *view, d capacity.Demand) bool {
	return evictAny(p, v, d, p.victims(v))
}

// evictAny is evict for given victims of other functions, per node.
func evictAny(p *pass, v *view, d capacity.Demand, others [][]victim) bool {
	choices, own := v.choices(d.RPS, false), v.superseded(p.space())
	var best []victim
	at := -1
	for i := range p.space().Places {
		if !p.allowed(v).Has(i) {
			continue
		}
		set := p.enough(i, v, append(slices.Clip(others[i]), own[i]...), choices)
		if set != nil && (at < 0 || cheaper(set, best)) {
			best, at = set, i
		}
	}
	if at < 0 {
		best = evictForSet(p, v, choices, others, own)
	}
	for _, x := range best {
		before := len(p.plan.Stop)
		if x.tier == 0 {
			p.engine.clock = max(p.engine.clock, x.worth)
		}
		if x.tier == shadowTier {
			stopShadow(p, x.view, x.Running, Evicted)
		} else {
			p.stop(x.view, x.Running, evictedWhy(x))
		}
		for i := before; i < len(p.plan.Stop); i++ {
			p.plan.Stop[i].For = v.Name
		}
		give(p.space(), &x.Running)
		x.view.yielding = x.view != v
	}
	return at >= 0 || len(best) > 0
}

func evictedWhy(x victim) Why {
	if x.tier == 2 {
		return Superseded
	}
	return Evicted
}

// victims lists, per node, the instances of others that could make room for v, in the order
// in which they should. Some may be v's own. Many functions ask for the same list before
// anything changes.
func (p *pass) victims(v *view) [][]victim {
	if !v.mayEvict() {
		return make([][]victim, len(p.space().Places))
	}
	known := &p.impatient
	if v.patient(p.now) {
		known = &p.patient
	}
	if *known == nil {
		*known = listVictims(p, v.patient(p.now))
	}
	return *known
}

// listVictims is victims for all functions that are patient or not.
func listVictims(p *pass, patient bool) [][]victim {
	lives := func(in Running) bool { return patient && in.lives(p.now, p.engine.settings.EvictLoads) }
	byNode := make([][]victim, len(p.space().Places))
	add := func(u *view, in Running, tier int, worth float64) {
		for node, here := range onNodes(&in) {
			if i, ok := p.space().Find(node); ok {
				byNode[i] = append(byNode[i], victim{in, here, u, tier, worth})
			}
		}
	}
	for _, u := range p.views {
		for _, s := range u.shadows {
			add(u, s, shadowTier, helps(u, &s, false))
		}
		// The others must stay; see victim.keeps.
		idle, busy := u.Waiting <= 0 && u.all() > u.floor, len(u.live) > max(1, u.floor)
		if !idle && !busy {
			continue
		}
		for _, in := range u.live {
			switch {
			case in.State != cluster.Ready:
			case u.Waiting <= 0 && !in.IdleSince.IsZero() && p.now.Sub(in.IdleSince) >= p.engine.settings.EvictIdle && !lives(in):
				add(u, in, 0, u.memory.worths[in.ID].value)
			case busy:
				add(u, in, 1, 0)
			}
		}
		for _, in := range u.parked {
			if idle && !lives(in) {
				add(u, in, 0, u.memory.worths[in.ID].value)
			}
		}
	}
	for _, victims := range byNode {
		slices.SortFunc(victims, victim.compare)
	}
	return byNode
}

// superseded lists, per node, v's instances of an older revision, in the order in which they
// should make room.
func (v *view) superseded(room *placing.Room) map[int][]victim {
	if v.woken || len(v.old) == 0 {
		return nil
	}
	byNode := map[int][]victim{}
	for _, in := range v.old {
		for node, here := range onNodes(&in) {
			if i, ok := room.Find(node); ok && in.Revision < v.Revision {
				byNode[i] = append(byNode[i], victim{in, here, v, 2, 0})
			}
		}
	}
	for _, victims := range byNode {
		slices.SortFunc(victims, victim.compare)
	}
	return byNode
}

// order compares victims of one tier: of shadows and in tier 0 the one that is worth least is
// first, and then the longest idle; in others the one of the function with the most instances.
func (x victim) order(y victim) int {
	if x.tier <= 0 {
		return cmp.Or(cmp.Compare(x.worth, y.worth), x.IdleSince.Compare(y.IdleSince))
	}
	return cmp.Compare(len(y.view.live), len(x.view.live))
}

// compare orders victims of a node: those that should make room first come first.
func (x victim) compare(y victim) int {
	return cmp.Or(cmp.Compare(x.tier, y.tier), x.order(y), cmp.Compare(x.ID, y.ID))
}

// keeps is how many instances the victim's function must keep.
func (x victim) keeps() int {
	switch x.tier {
	case 0:
		return x.view.floor
	case 1:
		return max(1, x.view.floor)
	default:
		return 0
	}
}

// may reports whether the victim may make room for v after those that taken counts by function,
// and counts it.
func (x victim) may(v *view, taken map[*view]int) bool {
	if x.tier == shadowTier { // Also v's own: it helps nothing without an instance.
		return true
	}
	if x.view == v && x.tier < 2 {
		return false
	}
	left := len(x.view.live) - taken[x.view]
	if x.Parked { // The minimum number of instances keep their shares.
		left += len(x.view.parked)
	}
	if x.tier < 2 && left <= x.keeps() {
		return false
	}
	taken[x.view]++
	return true
}

// enough returns the first few victims on place i that make room for one of v's choices or parked
// instances, without those that are not needed for that. It returns nil if all of them are not
// enough.
func (p *pass) enough(i int, v *view, victims []victim, choices []capacity.Choice) []victim {
	free := p.space().Places[i].Node
	taken := map[*view]int{}
	var set []victim
	for _, x := range victims {
		if !x.may(v, taken) {
			continue
		}
		set = append(set, x)
		if free.Drop(x.here, x.Device); v.serves(&free, choices) {
			return v.needed(set, free, choices)
		}
	}
	return nil
}

// needed drops the victims without which a choice still fits, the later ones first.
func (v *view) needed(set []victim, free cluster.Node, choices []capacity.Choice) []victim {
	for i := len(set) - 2; i >= 0; i-- {
		without := free
		if without.Hold(set[i].here, set[i].Device); v.serves(&without, choices) {
			free, set = without, slices.Delete(set, i, i+1)
		}
	}
	return set
}

// cheaper compares two sets of victims by their most valuable one, then by their number.
func cheaper(a, b []victim) bool {
	x, y := a[len(a)-1], b[len(b)-1]
	return cmp.Or(cmp.Compare(x.tier, y.tier), x.order(y), cmp.Compare(len(a), len(b))) < 0
}
