package scaling

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// This file decides how a function that may have shadows gets more: the cheapest way that is there in
// time. [cheapest] is the decision, ways lists what there is, and serve carries it out.

// kind is a way to serve more. Of two ways with the same cost the one that comes first is better.
type kind int

const (
	// quota gives an instance a higher CPU quota.
	quota kind = iota
	// unpark gives a parked instance its share again.
	unpark
	// twin starts another whole instance on a node that has one.
	twin
	// shadowHere starts a shadow on its body's node, shadowElsewhere one on another.
	shadowHere
	shadowElsewhere
	// whole starts a whole instance on a node without one.
	whole
)

// way is one way to serve more of a load.
type way struct {
	kind kind
	// gain is how many more requests per second are served then.
	gain float64
	// cpu, in millicores, and memory, in bytes, are what it takes beside what is held already. Weights
	// count unless the node has them and its instances share them.
	cpu    float64
	memory int64
	// ready is the time until it serves, exec that of a batch then.
	ready, exec time.Duration
	// price is that of a GiB in cores: the cores of its node over its memory (ρ of AsyFunc §4.2).
	price float64
	// at is the index of the instance among the live ones, or among the parked ones. place is that of
	// the node, and to the new quota.
	at, place int
	to        capacity.Choice
}

// cost is the price in cores of each request per second of a shortage.
func (w *way) cost(short float64) float64 {
	return (w.cpu/1000 + w.price*float64(w.memory)/(1<<30)) / min(w.gain, short)
}

// cheapest is the index of the way with the least cost among those that are there in time: a request
// that comes now is answered within the objective, which is 0 if there is none. It is the one that is
// ready first if none is in time, and -1 if no way serves more. short is what the function is short of in
// requests per second.
//
// For example a node has 8 cores and 16 GiB, so a GiB costs half a core, and 10 requests per second are missing.
// A twin with 500m and 256 MiB serves 12 more: (0.5 + 0.125)/10 = 0.0625 cores for each. A shadow with
// 500m and 64 MiB serves 9 more: (0.5 + 0.031)/9 = 0.059, so the shadow starts. A twin that shares the
// node's weights and takes 32 MiB costs (0.5 + 0.016)/10 = 0.0516, and starts itself.
func cheapest(ways []way, short float64, objective time.Duration) int {
	best, inTime := -1, false
	for i := range ways {
		w := &ways[i]
		if !(w.gain > 0) {
			continue
		}
		now := objective <= 0 || w.ready+w.exec <= objective
		better := best < 0 || now && !inTime
		if !better && now == inTime {
			x := &ways[best]
			order := cmp.Or(cmp.Compare(w.cost(short), x.cost(short)), cmp.Compare(w.kind, x.kind))
			if !now {
				order = cmp.Or(cmp.Compare(w.ready, x.ready), order)
			}
			better = order < 0
		}
		if better {
			best, inTime = i, now
		}
	}
	return best
}

// decides reports whether a function's ways are compared: it may have shadows.
func decides(v *view) bool { return len(v.Pairings) > 0 && len(v.sets) == 0 }

// serve gives a function what it is short of, one way after the other. It leaves the rest to
// the plan of all functions as soon as a whole instance is the cheapest or nothing is left.
func serve(p *pass, v *view) {
	for v.residual() > 0 {
		all := ways(p, v)
		best := cheapest(all, v.residual(), v.SLO)
		if best < 0 {
			return
		}
		switch w := &all[best]; w.kind {
		case quota:
			p.space().Grow(w.place, w.to.Config.Resources.Sub(v.live[w.at].Config.Resources), v.live[w.at].Device)
			p.resize(v, w.at, w.to, Load)
		case unpark:
			if !p.unparkOne(v, w.at, Load) {
				return
			}
		case shadowHere, shadowElsewhere:
			startShadow(p, v, w.at, w.place)
		default:
			return
		}
	}
}

// ways lists the ways to serve more of a function's load.
func ways(p *pass, v *view) (all []way) {
	all = slices.Concat(quotas(p, v), parkedOnes(p, v), wholes(p, v))
	for i := range v.live {
		in := &v.live[i]
		with := pairingOf(v, in, "")
		if with == nil || v.NoShadows || !mayHelp(v, in) {
			continue
		}
		place := placeShadow(p, v, in, with)
		if place < 0 {
			continue
		}
		w := way{kind: shadowHere, gain: gain(v, in, with, false), cpu: float64(with.Config.CPU), exec: in.Exec, at: i, place: place}
		if p.space().Places[place].Name != in.Node {
			w.kind = shadowElsewhere
		}
		w.takes(p, v, in.Artefact, with.Shadow)
		all = append(all, w)
	}
	return all
}

// takes sets what a new instance takes of its place's memory and when it serves.
func (w *way) takes(p *pass, v *view, artefact string, f Footprint) {
	at := &p.space().Places[w.place]
	w.price, w.memory, w.ready = priceOf(&at.Node), f.Own+f.Weights, f.Loading
	if v.SharedWeights && holds(v, at.Name, artefact) {
		w.memory = f.Own
	}
}

// priceOf is the price of a GiB of a node in cores.
func priceOf(n *cluster.Node) float64 {
	if n.Total.Memory <= 0 {
		return 0
	}
	return float64(n.Total.CPU) / 1000 / (float64(n.Total.Memory) / (1 << 30))
}

// holds reports whether a node has a whole instance of an artefact.
func holds(v *view, node, artefact string) bool {
	is := func(in Running) bool { return in.Node == node && in.Artefact == artefact }
	return slices.ContainsFunc(v.live, is) || slices.ContainsFunc(v.parked, is)
}

// quotas are the instances whose quota could be raised, as [pass.stretch] does.
func quotas(p *pass, v *view) (all []way) {
	if !p.engine.settings.Vertical {
		return nil
	}
	choices := v.choices(v.demand, false)
	for i := range v.live {
		in := &v.live[i]
		place, ok := p.space().Find(in.Node)
		if !ok || in.Fixed || in.Nodes != nil {
			continue
		}
		up, larger := v.bounds(in).Up, capacity.InPlace(choices, in.with(), in.Largest, true)
		if c, ok := capacity.Raise(larger, in.Config.CPU+p.space().Places[place].Free.CPU, up, v.residual()); ok {
			all = append(all, way{kind: quota, gain: c.Range.Up - up, cpu: millicores(p, c.Config) - millicores(p, in.Config), exec: c.Exec, at: i, place: place, to: c})
		}
	}
	return all
}

// parkedOnes are the parked instances that could serve again, as [pass.wake] lets them.
func parkedOnes(p *pass, v *view) (all []way) {
	for i, in := range v.parked {
		place, ok := p.space().Find(in.Node)
		if !ok {
			continue
		}
		if at := &p.space().Places[place]; !at.FitsOn(share(in.Config), in.Device) {
			smaller, ok := p.smaller(v, in, &at.Node)
			if !ok {
				continue
			}
			in.Config, in.Exec, in.Mean = smaller.Config, smaller.Exec, smaller.Mean
		}
		all = append(all, way{kind: unpark, gain: v.bounds(&in).Up, cpu: millicores(p, in.Config), exec: in.Exec, at: i, place: place})
	}
	return all
}

// millicores is what a config is worth in millicores.
func millicores(p *pass, c cluster.Config) float64 { return p.engine.settings.Cores(c.Resources) }

// wholes is the cheapest whole instance for each node that has room for one; none if the function has as
// many as it may have.
func wholes(p *pass, v *view) (all []way) {
	if v.Max > 0 && v.count() >= v.Max {
		return nil
	}
	choices := v.choices(v.demand, false)
	for place := range p.space().Places {
		at := &p.space().Places[place]
		if !p.allowed(v).Has(place) {
			continue
		}
		best, least := way{}, math.Inf(1)
		for i := range choices {
			c := &choices[i]
			if c.Config.Members() > 1 || !at.Fits(c.Config.Resources, v.Tenant) {
				continue
			}
			w := way{kind: whole, gain: c.Range.Up, cpu: millicores(p, c.Config), exec: c.Exec, place: place, to: *c}
			if holds(v, at.Name, c.Artefact) {
				w.kind = twin
			}
			w.takes(p, v, c.Artefact, footprintOf(v, c))
			if cost := w.cost(v.residual()); cost < least {
				best, least = w, cost
			}
		}
		if best.gain > 0 {
			all = append(all, best)
		}
	}
	return all
}

// footprintOf is what a whole instance takes. Without a layer profile it is all that a plan gives it.
func footprintOf(v *view, c *capacity.Choice) Footprint {
	for i := range v.Pairings {
		if x := &v.Pairings[i]; x.Artefact == c.Artefact {
			return x.Whole
		}
	}
	return Footprint{Own: c.Config.Own(), Weights: c.Config.Mapped.Bytes, Loading: c.Loading}
}
