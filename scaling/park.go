package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A resting function's instances are parked: they hold their memory only. Their models
// stay loaded, and others use their CPU and GPU share meanwhile. With the next request an
// instance takes its share again, in the time that a quota takes to change, if the node
// has the share free. Otherwise the function counts as one without an instance.

// park parks the instances of a resting function. The minimum number of instances keep
// their shares. So do sets over several nodes: to come back, one needs its share on each of them.
func (p *pass) park(v *view) {
	if !v.resting {
		return
	}
	for i := len(v.live) - 1; i >= 0 && len(v.live) > v.floor; i-- {
		in := v.live[i]
		if in.State != cluster.Ready || in.Nodes != nil {
			continue
		}
		reason := reasonOf(v, Idle).ofIdle(p.now, &in)
		p.changed(v)
		v.live = slices.Delete(v.live, i, i+1)
		in.Parked = true
		v.parked = append(v.parked, in)
		p.plan.Park = append(p.plan.Park, Park{v.Name, in.ID, reason})
	}
}

// wakes reports whether waiting requests or the minimum number of instances need a parked
// instance: because there is no other, or because all others are still starting.
func (v *view) wakes() bool {
	return v.wantsFirst() || v.stuck(v.live)
}

// stuck reports whether requests wait and none of these instances could take them.
func (v *view) stuck(set []Running) bool {
	serves := func(in Running) bool { return in.State == cluster.Ready && !in.Parked }
	return v.Waiting > 0 && !v.retired && !v.yielding && !v.woken && !slices.ContainsFunc(set, serves)
}

// unpark lets parked instances take their shares again while wanted says so and their
// nodes have room. That takes no time; a new instance would have to start.
func (p *pass) unpark(v *view, wanted func() bool) {
	for i := 0; i < len(v.parked) && wanted(); {
		why := whyStart(v)
		switch {
		case why != Load || v.residual() > 0:
		case v.count() < v.floor:
			why = Minimum
		default:
			why = PeakLoad
		}
		if !p.unparkOne(v, i, why) {
			i++
		}
	}
}

// unparkOne unparks v's i-th parked instance and reports whether there was room.
func (p *pass) unparkOne(v *view, i int, why Why) bool {
	in := v.parked[i]
	if !p.wake(v, &in, why) {
		return false
	}
	p.changed(v)
	// As for an instance that starts, the plan changes nothing else about it.
	in.State = cluster.Starting
	v.parked = slices.Delete(slices.Clone(v.parked), i, i+1)
	v.live = append(v.live, in)
	return true
}

// unparkOld unparks an instance of an older revision to serve while the first of the
// newer one starts.
func (p *pass) unparkOld(v *view) {
	if len(v.old) == 0 || !v.stuck(v.live) || !v.stuck(v.old) {
		return
	}
	for i := range v.old {
		if v.old[i].Parked && p.wake(v, &v.old[i], Waiting) {
			return
		}
	}
}

// wake gives a parked instance of v the share that it had. If that does not fit, it takes
// the CPU quota for the same threads that serves most. It reports whether there was room.
func (p *pass) wake(v *view, in *Running, why Why) bool {
	place, ok := p.space().Find(in.Node)
	if !ok {
		return false
	}
	at := &p.space().Places[place]
	if !at.FitsOn(share(in.Config), in.Device) {
		smaller, ok := p.smaller(v, *in, &at.Node)
		if !ok {
			return false
		}
		in.Config, in.Exec, in.Mean = smaller.Config, smaller.Exec, smaller.Mean
	}
	p.space().Grow(place, share(in.Config), in.Device)
	in.Parked, v.woken = false, true
	p.plan.Unpark = append(p.plan.Unpark, Unpark{
		Resize{Function: v.Name, ID: in.ID, Config: in.Config, Exec: in.Exec, Mean: in.Mean, Reason: reasonOf(v, why)}, p.leaving(place),
	})
	return true
}

// share is what an instance takes from its node when it is unparked.
func share(c cluster.Config) cluster.Resources {
	return c.Resources.Sub(c.Resources.Parked())
}

// smaller returns the candidate that an instance of v can become if less is free on its node than it
// had.
func (p *pass) smaller(v *view, in Running, at *cluster.Node) (capacity.Choice, bool) {
	s := p.engine.settings
	if !s.Vertical || !at.FitsOn(cluster.Resources{GPU: in.Config.GPU}, in.Device) {
		return capacity.Choice{}, false
	}
	need := max(v.demand, capacity.SomeLoad)
	return capacity.Raise(capacity.InPlace(s.Choices(v.wanted(need)), in.with(), in.Largest, false), at.Free.CPU, 0, need)
}

// serves reports whether a node has room for one of the choices, or for the share of one of v's
// parked instances there.
func (v *view) serves(n *cluster.Node, choices []capacity.Choice) bool {
	return slices.ContainsFunc(choices, func(c capacity.Choice) bool { return n.Fits(c.Config.Resources, v.Tenant) }) ||
		slices.ContainsFunc(v.parked, func(in Running) bool { return in.Node == n.Name && n.FitsOn(share(in.Config), in.Device) })
}

// all is how many instances of the current revision there are, parked or not.
func (v *view) all() int { return len(v.live) + len(v.parked) }

// parkedFirst orders parked instances before others.
func parkedFirst(a, b Running) int {
	switch {
	case a.Parked == b.Parked:
		return 0
	case a.Parked:
		return -1
	}
	return 1
}
