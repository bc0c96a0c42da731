package scaling

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// findShadows finds the shadows of the live instances. What a plan knows of a paired instance is that of
// the pair; its quota is left as it is, because the pair's times are of that quota.
func findShadows(v *view) {
	for _, s := range v.Shadows {
		if s.State != cluster.Starting && s.State != cluster.Ready {
			continue
		}
		v.shadows = append(v.shadows, s)
		if i := bodyOf(v, &s); i >= 0 {
			join(v, i, pairingOf(v, &v.live[i], s.Part))
		}
	}
	slices.SortFunc(v.shadows, func(a, b Running) int { return cmp.Compare(a.ID, b.ID) })
}

// join marks v's i-th live instance as one with a shadow. with is nil if the pair's times are not
// known: it then counts as alone.
func join(v *view, i int, with *Pairing) {
	v.changed()
	v.live[i].pairing, v.live[i].Fixed = with, true
}

// gain is how many more requests per second an instance serves with a shadow than without, at the
// demand or at the peak.
func gain(v *view, in *Running, with *Pairing, peak bool) float64 {
	alone, pair := *in, *in
	alone.pairing, pair.pairing = nil, with
	bounds := v.bounds
	if peak {
		bounds = v.peaked
	}
	return bounds(&pair).Up - bounds(&alone).Up
}

// part stops the shadows that are not needed any more: all of a function that rests or is
// retired, those that may help no more, and those without which the instances still carry the peak. Those
// that help least go first. As for surplus instances, the engine must have observed a whole window.
func part(p *pass, v *view) {
	switch {
	case len(v.shadows) == 0:
		return
	case v.resting || v.idle && v.floor == 0:
		for _, s := range slices.Clone(v.shadows) {
			stopShadow(p, v, s, Idle)
		}
		return
	case !settled(v, p.now):
		return
	}
	all := slices.Clone(v.shadows)
	slices.SortStableFunc(all, func(a, b Running) int { return cmp.Compare(helps(v, &a, true), helps(v, &b, true)) })
	for _, s := range all {
		switch i := bodyOf(v, &s); {
		case i < 0: // See reassignShadows.
		case pairingOf(v, &v.live[i], s.Part) == nil && !v.NoShadows:
			stopShadow(p, v, s, Unpaired)
		case spared(v, &s):
			stopShadow(p, v, s, Surplus)
		}
	}
}

// spared reports whether v carries its peak without a shadow, by the rule of [pass.surplus]. Only what
// serves already counts: the shadow stays until what replaces it is ready.
func spared(v *view, s *Running) bool {
	x := v.engine.settings
	return v.peak < capacity.Threshold(serving(v, ""), x.Alpha) && serving(v, s.ID).Up >= v.peak &&
		spares(v, &v.live[bodyOf(v, s)], helps(v, s, true))
}

// serving is [R_min, R_max] at the peak of the instances that are ready, with their ready shadows except one.
func serving(v *view, except cluster.InstanceID) capacity.Range {
	return total(v.live, func(in *Running) capacity.Range {
		if in.State != cluster.Ready {
			return capacity.Range{}
		}
		helps := func(s Running) bool { return s.Body == in.ID && s.State == cluster.Ready && s.ID != except }
		alone := *in
		if !slices.ContainsFunc(v.shadows, helps) {
			alone.pairing = nil
		}
		return v.peaked(&alone)
	})
}

// reassignShadows gives shadows whose bodies are gone to instances that have none, if these then serve more
// than they do alone and the load needs it. It stops those of another revision, and the others as soon as
// the load is known. As long as the function has no instance, its shadows wait for one.
func reassignShadows(p *pass, v *view) {
	waits := len(v.live) == 0 && !v.retired && !v.idle
	for _, s := range slices.Clone(v.shadows) {
		if hasBody(v, &s) || waits && v.current(&s) {
			continue
		}
		best, most := -1, 0.0
		for i := range v.live {
			in := &v.live[i]
			with := pairingOf(v, in, s.Part)
			if with == nil || !v.current(&s) || v.residual() == 0 || !mayHelp(v, in) || with.Config.CPU > s.Config.CPU || !alike(p, s.Node, in.Node) {
				continue
			}
			if gain := gain(v, in, with, false); gain > most {
				best, most = i, gain
			}
		}
		if best < 0 {
			if !v.current(&s) || settled(v, p.now) {
				stopShadow(p, v, s, Unpaired)
			}
			continue
		}
		v.shadows[slices.IndexFunc(v.shadows, func(x Running) bool { return x.ID == s.ID })].Body = v.live[best].ID
		p.plan.Pair = append(p.plan.Pair, Pair{v.Name, s.ID, v.live[best].ID, reasonOf(v, Load)})
		p.changed(v)
		join(v, best, pairingOf(v, &v.live[best], s.Part))
	}
}

// hasBody reports whether a shadow's body is there. A body that shows as stopping may only have lost its
// connection for a moment.
func hasBody(v *view, s *Running) bool {
	is := func(in Running) bool { return in.ID == s.Body }
	stopping := func(in Running) bool { return is(in) && in.State == cluster.Stopping }
	return bodyOf(v, s) >= 0 || slices.ContainsFunc(v.old, is) || slices.ContainsFunc(v.Instances, stopping)
}

// mayHelp reports whether an instance can get a shadow: it started as a body, has none, and is no set.
func mayHelp(v *view, in *Running) bool {
	return in.Paired && in.pairing == nil && in.Nodes == nil && in.Config.Members() == 1 && in.Config.GPU == 0 &&
		!slices.ContainsFunc(v.shadows, func(s Running) bool { return s.Body == in.ID })
}

// help starts shadows for the load that v's instances are short of, for those first that gain most.
// A shadow goes to its body's node if that has room, else to the node with the least free CPU that
// has.
func help(p *pass, v *view) {
	for len(v.Pairings) > 0 && !v.NoShadows && v.residual() > 0 {
		best, place, most := -1, -1, 0.0
		for i := range v.live {
			in := &v.live[i]
			with := pairingOf(v, in, "")
			if with == nil || !mayHelp(v, in) {
				continue
			}
			gain := gain(v, in, with, false)
			if gain <= most {
				continue
			}
			if at := placeShadow(p, v, in, with); at >= 0 {
				best, place, most = i, at, gain
			}
		}
		if best < 0 {
			return
		}
		if startShadow(p, v, best, place); v.residual() == 0 { // No whole instance had room, perhaps.
			p.plan.Unplaced = slices.DeleteFunc(p.plan.Unplaced, func(u Unplaced) bool { return u.Function == v.Name })
		}
	}
}

// alike reports whether two nodes are of one type. Instances on other types often compute with other kernels:
// their rows would not have the same bits, so bodies refuse such shadows.
func alike(p *pass, a, b string) bool {
	places := p.space().Places
	i, one := p.space().Find(a)
	k, other := p.space().Find(b)
	return !one || !other || places[i].Type == places[k].Type
}

// placeShadow is the place for an instance's shadow, -1 if none has room.
func placeShadow(p *pass, v *view, in *Running, with *Pairing) int {
	places, best := p.space().Places, -1
	for i := range places {
		if !places[i].Fits(with.Config.Resources, v.Tenant) || !p.allowed(v).Has(i) {
			continue
		}
		if places[i].Name == in.Node {
			return i
		}
		if !alike(p, places[i].Name, in.Node) || v.ShadowsBeside && !holds(v, places[i].Name, in.Artefact) {
			continue
		}
		if best < 0 || places[i].Free.CPU < places[best].Free.CPU {
			best = i
		}
	}
	return best
}

// startShadow plans a shadow for v's i-th live instance.
func startShadow(p *pass, v *view, i, place int) {
	in := &v.live[i]
	with := pairingOf(v, in, "")
	p.space().Take(place, with.Config.Resources, v.Tenant)
	p.plan.Start = append(p.plan.Start, Start{
		Function: v.Name, Revision: v.Revision, Artefact: in.Artefact, Config: with.Config, Node: p.space().Places[place].Name,
		After: p.leaving(place), Role: cluster.Shadow, Part: with.Part, Body: in.ID, Reason: reasonOf(v, Load),
	})
	// A later resize of the same pass would be of another quota than the pair's.
	p.changed(v)
	join(v, i, with)
}

// helps is how many more requests per second a shadow's body serves with it, at the demand or at the peak.
// A shadow that the plan knows no times of helps nothing.
func helps(v *view, s *Running, peak bool) float64 {
	if i := bodyOf(v, s); i >= 0 && v.live[i].pairing != nil {
		return gain(v, &v.live[i], v.live[i].pairing, peak)
	}
	return 0
}
