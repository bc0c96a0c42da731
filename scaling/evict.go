package scaling

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// victim is an instance that could make room.
type victim struct {
	Running
	view *view
	// tier is 0 for idle instances, 1 for those beyond their function's
	// first, 2 for the function's own older revision.
	tier int
}

// evict makes room for one instance of v, which has none, on the node where that costs
// least. It reports whether there is room now. It stops in this order, as far as needed:
//
//   - the instances that have been idle for longest, parked or not;
//   - instances of functions that keep another one; these finish their requests first;
//   - v's own instances of an older revision.
//
// Functions with waiting requests keep their idle instances, and all keep Min. An idle
// instance has a least lifetime: see lives. Pre-warming, and replacing a revision without
// load, take nothing from others.
func (p *pass) evict(v *view, d capacity.Demand) bool {
	choices := p.engine.settings.Choices(d)
	var best []victim
	at := -1
	for i, victims := range p.victims(v) {
		if !p.allowed(v).Has(i) {
			continue
		}
		set := p.enough(i, victims, v.unparked(p.space().Places[i].Name, choices))
		if set != nil && (at < 0 || cheaper(set, best)) {
			best, at = set, i
		}
	}
	for _, x := range best {
		p.stop(x.view, x.Running, evictedWhy(x))
		p.space().Give(at, x.Holds(), x.ID)
		x.view.robbed = x.view != v
	}
	return at >= 0
}

func evictedWhy(x victim) Why {
	if x.tier == 2 {
		return Superseded
	}
	return Evicted
}

// victims lists, per node, the instances that could make room for v, in the order in
// which they should.
func (p *pass) victims(v *view) [][]victim {
	byNode := make([][]victim, len(p.space().Places))
	add := func(u *view, in Running, tier int) {
		if i, ok := p.space().Find(in.Node); ok {
			byNode[i] = append(byNode[i], victim{in, u, tier})
		}
	}
	for _, u := range p.views {
		for _, in := range u.live {
			switch {
			case u == v || !v.mayEvict() || in.State != cluster.Ready:
			case u.Waiting <= 0 && !in.IdleSince.IsZero() && p.now.Sub(in.IdleSince) >= p.engine.settings.EvictIdle && !p.lives(in, v):
				add(u, in, 0)
			default:
				add(u, in, 1)
			}
		}
		for _, in := range u.parked {
			if u != v && v.mayEvict() && u.Waiting <= 0 && !p.lives(in, v) {
				add(u, in, 0)
			}
		}
		for _, in := range u.old {
			if u == v && !v.woken {
				add(u, in, 2)
			}
		}
	}
	for _, victims := range byNode {
		slices.SortFunc(victims, func(a, b victim) int {
			return cmp.Or(cmp.Compare(a.tier, b.tier), a.order(b), cmp.Compare(a.ID, b.ID))
		})
	}
	return byNode
}

// lives reports whether an idle instance of another function keeps its room although v needs
// it. Otherwise two functions that take turns on a node with room for one would load at each
// call.
//
// An instance that took L to load keeps its room until it has been idle for
// EvictLoads·L. So of the time between two loads on the same room, at most 1 of
// 1 + EvictLoads parts is spent on loading: a third with EvictLoads = 2. v's requests wait
// for that at most half the time that they may wait altogether (SLO + ColdWait), and have the
// other half to load. If v is known to take longer to load than that, they wait for less.
// With an SLO of 0.2 s and a cold wait of 30 s an instance that took 2 s to load keeps its
// room for 4 s, and one that took 10 s for at most 15.1 s after v's request came, or 5.2 s if
// v takes 20 s to load.
func (p *pass) lives(in Running, v *view) bool {
	idle := p.now.Sub(in.IdleSince)
	if v.ColdWait <= 0 || in.IdleSince.IsZero() || float64(idle) >= p.engine.settings.EvictLoads*float64(in.Loading) {
		return false
	}
	may := v.SLO + v.ColdWait
	return v.waited(p.now) < min(may/2, may-v.memory.loading-v.memory.loading/loadMargin)
}

// loadMargin: loading may take longer than the last time by one in so many parts.
const loadMargin = 4

// noteWaiting remembers since when requests want an instance and there is none ready. At a
// look none may wait, because those that did have just been refused: that does not end the
// time, unless none comes for as long as one may wait.
func (v *view) noteWaiting(now time.Time) {
	m := v.memory
	serves := false
	for _, in := range v.live {
		if in.State == cluster.Ready {
			serves = true
			m.loading = cmp.Or(in.Loading, m.loading)
		}
	}
	switch {
	case serves:
		m.waits = time.Time{}
	case v.Waiting <= 0:
	case m.waits.IsZero() || now.Sub(m.waited) > v.SLO+v.ColdWait:
		m.waits, m.waited = now, now
	default:
		m.waited = now
	}
}

// waited is how long requests have wanted an instance without a ready one.
func (v *view) waited(now time.Time) time.Duration {
	if v.memory.waits.IsZero() {
		return 0
	}
	return now.Sub(v.memory.waits)
}

// order compares victims of one tier: in tier 0 the longest idle is first, in others the
// one of the function with the most instances.
func (x victim) order(y victim) int {
	if x.tier == 0 {
		return x.IdleSince.Compare(y.IdleSince)
	}
	return cmp.Compare(len(y.view.live), len(x.view.live))
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

// enough returns the first few victims on place i that make room for one of the choices,
// without those that are not needed for that. It returns nil if all of them are not
// enough.
func (p *pass) enough(i int, victims []victim, choices []capacity.Choice) []victim {
	free := p.space().Places[i].Free
	taken := map[*view]int{}
	var set []victim
	for _, x := range victims {
		left := len(x.view.live) - taken[x.view]
		if x.tier == 0 {
			left += len(x.view.parked)
		}
		if x.tier < 2 && left <= x.keeps() {
			continue
		}
		taken[x.view]++
		set = append(set, x)
		if free = free.Add(x.Holds()); fitsAny(choices, free) {
			return needed(set, free, choices)
		}
	}
	return nil
}

// needed drops the victims without which a choice still fits, the later ones first.
func needed(set []victim, free cluster.Resources, choices []capacity.Choice) []victim {
	for i := len(set) - 2; i >= 0; i-- {
		if without := free.Sub(set[i].Holds()); fitsAny(choices, without) {
			free, set = without, slices.Delete(set, i, i+1)
		}
	}
	return set
}

func fitsAny(choices []capacity.Choice, free cluster.Resources) bool {
	return slices.ContainsFunc(choices, func(c capacity.Choice) bool { return c.Config.Resources.Fits(free) })
}

// cheaper compares two sets of victims by their most valuable one, then by their number.
func cheaper(a, b []victim) bool {
	x, y := a[len(a)-1], b[len(b)-1]
	return cmp.Or(cmp.Compare(x.tier, y.tier), x.order(y), cmp.Compare(len(a), len(b))) < 0
}
