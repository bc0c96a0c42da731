package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// stretch raises the CPU quotas of instances, one after the other, for the load that a
// function is short of. That takes effect at once; a new instance would have to start.
// Each gets the least quota that suffices, otherwise the one that helps most.
//
// An instance that still starts begins with the larger quota. When a load sets in, the
// first instance is planned for one request and gets the smallest share. A few passes
// later a second small instance would serve less than the first with both shares.
//
// A set over several nodes keeps its quota, here and in merge and relax.
func (p *pass) stretch(v *view) {
	if !p.engine.settings.Vertical || len(v.live) == 0 || v.residual() == 0 {
		return
	}
	choices := v.choices(v.demand, false)
	type same struct {
		artefact string
		config   cluster.Config
		largest  int
	}
	known := map[same][]capacity.Choice{}
	for i := range v.live {
		in := &v.live[i]
		as := same{in.Artefact, in.Config, in.Largest}
		larger, ok := known[as]
		if !ok {
			larger = capacity.InPlace(choices, in.with(), in.Largest, true)
			known[as] = larger
		}
		if len(larger) == 0 || in.Fixed || in.Nodes != nil {
			continue
		}
		residual := residualOf(v, in.Artefact)
		if residual == 0 {
			continue
		}
		place, ok := p.space().Find(in.Node)
		if !ok {
			continue
		}
		if c, ok := capacity.Raise(larger, in.Config.CPU+p.space().Places[place].Free.CPU, v.bounds(in).Up, residual); ok {
			p.space().Grow(place, c.Config.Resources.Sub(in.Config.Resources), in.Device)
			p.resize(v, i, c, Load)
		}
	}
}

// resize plans a new quota for v's i-th instance.
func (p *pass) resize(v *view, i int, to capacity.Choice, why Why) {
	reason := reasonOf(v, why)
	p.changed(v)
	in := &v.live[i]
	in.Config, in.Exec, in.Mean = to.Config, to.Exec, to.Mean
	r := Resize{Function: v.Name, ID: in.ID, Config: to.Config, Exec: to.Exec, Mean: to.Mean, Reason: reason}
	if at := slices.IndexFunc(p.plan.Resize, func(x Resize) bool { return x.ID == in.ID }); at >= 0 {
		p.plan.Resize[at] = r
		return
	}
	p.plan.Resize = append(p.plan.Resize, r)
}

const (
	// mergePause is the least time between two merges of a function. Meanwhile a later
	// plan raises the quota of the instance that stays.
	mergePause = 500 * time.Millisecond
	// mergeGain is how much more the merged instance must serve than both before, as a
	// part of that.
	mergeGain = 0.05
)

// merge stops an instance, or an instance's shadow, in favour of another one of its function on the same
// node, if the function is short of something and nothing else has room. With the share of both, that
// one serves more, because its batches are larger. A later plan raises its quota when the
// room is free. Nothing has to start, so merge works for a burst, too.
//
// For example on 250m one request takes 29 ms, and only one at a time meets 50 ms. Two
// such instances serve 34 requests/s each. One of 500m takes four at a time in 33 ms:
// 121/s.
func (p *pass) merge(v *view) {
	if !p.engine.settings.Vertical || !v.joint || v.short != placing.NoRoom || v.residual() == 0 || !v.calm(true) || p.now.Sub(v.memory.merged) < mergePause {
		return
	}
	choices, leaves, helper, most := v.choices(v.demand, false), -1, -1, 0.0
	better := func(stays *Running, both float64, goes int) (found bool) {
		place, ok := p.space().Find(stays.Node)
		if !ok || stays.Nodes != nil {
			return false
		}
		for _, c := range capacity.InPlace(choices, stays.with(), stays.Largest, true) {
			if gain := c.Range.Up - both; c.Config.CPU <= stays.Config.CPU+goes+p.space().Places[place].Free.CPU && gain > max(most, mergeGain*both) {
				most, found = gain, true
			}
		}
		return found
	}
	for i := range v.live {
		for j := range v.live {
			stays, goes := &v.live[i], &v.live[j]
			if len(v.live) <= max(1, v.floor) || i == j || goes.Nodes != nil || stays.Fixed || goes.Fixed || stays.Node != goes.Node || v.sets != nil && stays.Artefact != goes.Artefact || v.bounds(stays).Up < v.bounds(goes).Up {
				continue // The one that serves more stays.
			}
			if better(stays, v.bounds(stays).Up+v.bounds(goes).Up, goes.Config.CPU) {
				leaves = j
			}
		}
	}
	for k := range v.shadows {
		s, before := &v.shadows[k], most
		i := bodyOf(v, s)
		if i < 0 || s.Node != v.live[i].Node || fixed(v, s.Body) || !better(&v.live[i], v.bounds(&v.live[i]).Up, s.Config.CPU) {
			continue
		}
		if wouldRaise(p, v, i, s) {
			helper = k
		} else {
			most = before
		}
	}
	switch {
	case helper >= 0:
		stopShadow(p, v, v.shadows[helper], Rearranged)
	case leaves >= 0:
		p.stop(v, v.live[leaves], Rearranged)
	default:
		return
	}
	v.memory.merged, v.yielding = p.now, true
}

// wouldRaise reports whether the plans after one that stops a shadow raise the quota of its body, v's i-th live
// instance, to more than the pair serves. Without that they would start the shadow again: it may be the cheaper
// way, although it serves less.
func wouldRaise(p *pass, v *view, i int, s *Running) bool {
	place, ok := p.space().Find(s.Node)
	if !ok || !decides(v) {
		return ok // Otherwise quotas come first.
	}
	pair, with, shadows := v.bounds(&v.live[i]).Up, v.live[i].pairing, v.shadows
	v.changed()
	v.live[i].pairing, v.live[i].Fixed = nil, false
	v.shadows = slices.DeleteFunc(slices.Clone(shadows), func(x Running) bool { return x.ID == s.ID })
	p.space().Undo(place, s.Config.Resources, "")
	all := ways(p, v)
	best := cheapest(all, v.residual(), v.SLO)
	p.space().Hold(place, s.Config.Resources, "")
	v.changed()
	v.live[i].pairing, v.live[i].Fixed, v.shadows = with, true, shadows
	return best >= 0 && all[best].kind == quota && all[best].at == i && all[best].to.Range.Up > (1+mergeGain)*pair
}

// fixed reports whether an instance's quota could not be changed. Running.Fixed of a live instance is also true
// for one with a shadow.
func fixed(v *view, id cluster.InstanceID) bool {
	return slices.ContainsFunc(v.Instances, func(in Running) bool { return in.ID == id && in.Fixed })
}

// calm reports whether nothing about the function's instances is changing. pairs lets some have shadows that
// serve.
func (v *view) calm(pairs bool) bool {
	moves := func(in Running) bool { return in.State != cluster.Ready || in.Fixed && !(pairs && !fixed(v, in.ID)) }
	return v.started == 0 && !v.woken && !v.yielding && len(v.old) == 0 && !slices.ContainsFunc(v.live, moves) &&
		!slices.ContainsFunc(v.shadows, func(s Running) bool { return s.State != cluster.Ready })
}

// relax lowers the quota of one instance if the load needed less for the whole window, as
// for surplus instances. Later plans can use the freed quota.
func (p *pass) relax(v *view) {
	s := p.engine.settings
	if !s.Vertical || len(v.live) == 0 {
		return
	}
	total := v.high()
	if v.peak >= capacity.Threshold(total, s.Alpha) {
		return
	}
	best, to, saved := -1, capacity.Choice{}, 0
	for i := range v.live {
		in := &v.live[i]
		if in.Nodes != nil {
			continue
		}
		below := v.memory.Below(in.with(), in.Largest, v.peak)
		for _, c := range below {
			if less := in.Config.CPU - c.Config.CPU; in.State == cluster.Ready && !in.Fixed && less > saved && total.Up-v.peaked(in).Up+c.Range.Up >= v.peak && spares(v, in, v.peaked(in).Up-c.Range.Up) {
				best, to, saved = i, c, less
			}
		}
	}
	if best >= 0 {
		p.resize(v, best, to, Surplus)
	}
}
