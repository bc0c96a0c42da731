package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Instances of a function that rests hold their memory and nothing else: their
// models stay loaded, and what they would compute with is others' meanwhile. The next
// request finds its instance in the time that a quota takes to change, if the node
// has the share free; else the function is treated as one without an instance.

// park has the instances of a function that rests give back their shares, but for
// those that there must be, which others cannot take the room of.
func (p *pass) park(v *view) {
	if !v.resting {
		return
	}
	for i := len(v.live) - 1; i >= 0 && len(v.live) > v.floor; i-- {
		in := v.live[i]
		if in.State != cluster.Ready {
			continue
		}
		v.changed()
		v.live = slices.Delete(v.live, i, i+1)
		in.Parked = true
		v.parked = append(v.parked, in)
		p.plan.Park = append(p.plan.Park, Park{v.Name, in.ID})
	}
}

// wakes reports whether requests or the least number of instances need a parked
// instance: because there is no other, or because all others are still starting.
func (v *view) wakes() bool {
	return v.wantsFirst() || v.stuck(v.live)
}

// stuck reports whether requests wait and none of these instances could take them.
func (v *view) stuck(set []Running) bool {
	serves := func(in Running) bool { return in.State == cluster.Ready && !in.Parked }
	return v.Waiting > 0 && !v.retired && !v.robbed && !v.woken && !slices.ContainsFunc(set, serves)
}

// unpark has parked instances take up their shares again while more are wanted and
// as far as their nodes have room: that takes no time, where a new instance would have
// to start.
func (p *pass) unpark(v *view, wanted func() bool) {
	for i := 0; i < len(v.parked) && wanted(); {
		if !p.unparkOne(v, i) {
			i++
		}
	}
}

// unparkOne has v's i-th parked instance serve again, if there is room.
func (p *pass) unparkOne(v *view, i int) bool {
	in := v.parked[i]
	if !p.wake(v, &in) {
		return false
	}
	v.changed()
	// Nothing else is planned for it now, as for one that starts.
	in.State = cluster.Starting
	v.parked = slices.Delete(slices.Clone(v.parked), i, i+1)
	v.live = append(v.live, in)
	return true
}

// unparkOld has an instance of an older revision serve while the first of the newer
// one starts.
func (p *pass) unparkOld(v *view) {
	if len(v.old) == 0 || !v.stuck(v.live) || !v.stuck(v.old) {
		return
	}
	for i := range v.old {
		if v.old[i].Parked && p.wake(v, &v.old[i]) {
			return
		}
	}
}

// wake has a parked instance of v take up what it had, or else the CPU quota of the
// same threads that serves most. It reports whether there was room.
func (p *pass) wake(v *view, in *Running) bool {
	place, ok := p.space().Find(in.Node)
	if !ok {
		return false
	}
	free := p.space().Places[place].Free
	if !share(in.Config).Fits(free) {
		smaller, ok := p.smaller(v, *in, free)
		if !ok {
			return false
		}
		in.Config, in.Exec, in.Mean = smaller.Config, smaller.Exec, smaller.Mean
	}
	p.space().Take(place, share(in.Config))
	in.Parked, v.woken = false, true
	p.plan.Unpark = append(p.plan.Unpark, Unpark{
		Resize{Function: v.Name, ID: in.ID, Config: in.Config, Exec: in.Exec, Mean: in.Mean}, p.leaving(place),
	})
	return true
}

// share is what a parked instance takes of its node when it is unparked.
func share(c cluster.Config) cluster.Resources {
	return c.Resources.Sub(c.Resources.Parked())
}

// smaller is the candidate that an instance of v can become where less is free than
// it had.
func (p *pass) smaller(v *view, in Running, free cluster.Resources) (capacity.Choice, bool) {
	s := p.engine.settings
	if !s.Vertical || in.Config.GPU > free.GPU {
		return capacity.Choice{}, false
	}
	need := max(v.demand, capacity.SomeLoad)
	return capacity.Raise(capacity.InPlace(s.Choices(v.wanted(need)), in.with(), in.Largest, false), free.CPU, 0, need)
}

// unparked are the choices that v has on a node: where it has a parked instance, that
// one's share, too.
func (v *view) unparked(node string, choices []capacity.Choice) []capacity.Choice {
	for _, in := range v.parked {
		if in.Node == node {
			choices = append(slices.Clip(choices), capacity.Choice{Candidate: capacity.Candidate{Config: cluster.Config{Resources: share(in.Config)}}})
		}
	}
	return choices
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
