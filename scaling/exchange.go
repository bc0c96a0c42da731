package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// exchange plans one step of exchanges if some function has too little and a step is
// due. It leaves out functions with shadows: their instances are worth more than their configs.
func (p *pass) exchange() {
	w := &p.engine.exchanges
	short := func(v *view) bool {
		return v.joint && len(v.shadows) == 0 && v.short == placing.NoRoom && v.steady > v.capacity()
	}
	if !slices.ContainsFunc(p.views, short) {
		w.Enough()
		return
	}
	w.Short(p.now)
	var views []*view
	early := false
	for _, v := range p.views {
		if !v.joint || strict(v) || len(v.live) == 0 || len(v.shadows) > 0 || v.yielding || len(v.old) > 0 || !p.allowed(v).Any() {
			continue
		}
		if v.started > 0 || v.woken {
			return
		}
		early = early || slices.ContainsFunc(v.live, func(in Running) bool { return in.State == cluster.Starting })
		views = append(views, v)
	}
	window := p.engine.settings.Stabilisation
	if !w.Due(p.now, early, window) {
		return
	}
	step, found := joint.TryExchange(p.space(), p.exchangeable(views), early, p.work)
	w.Tried(p.now, early, found, window)
	for _, m := range step.Stop {
		v := views[m.Function]
		at := slices.IndexFunc(v.live, func(in Running) bool { return in.ID == m.ID })
		p.stop(v, v.live[at], Rearranged)
	}
	for _, s := range step.Start {
		p.start(views[s.Function], []placing.Placed{s.Placed}, Rearranged)
	}
}

// best returns the candidate with the highest rate that the instance can run on the share
// that it has. A new instance of the same share could do no more, so it need not replace
// this one.
func (in *Running) best(choices []capacity.Choice) capacity.Candidate {
	best, most := in.with(), 0.0
	for _, c := range choices {
		if c.Artefact == in.Artefact && sameSize(c.Config, in.Config) && c.Config.Batch <= max(in.Largest, in.Config.Batch) && c.Range.Up > most {
			best, most = c.Candidate, c.Range.Up
			best.Config = best.Config.Keeping(in.Config)
		}
	}
	return best
}

// sameSize reports whether a new instance with config a would be like one that runs with b: they differ in their
// batches and in their memory at most.
func sameSize(a, b cluster.Config) bool {
	return a.Keeping(b).Resources == b.Resources && a.Members() == b.Members() && a.Streams() == b.Streams() && a.Apart == b.Apart
}

// exchangeable converts views for [joint.TryExchange].
func (p *pass) exchangeable(views []*view) []joint.ExchangeFunction {
	all := make([]joint.ExchangeFunction, len(views))
	for k, v := range views {
		f := joint.ExchangeFunction{Steady: v.steady, Least: v.least(), Count: v.count(), Max: v.Max, Floor: v.floor, Tenant: v.Tenant}
		choices := v.choices(v.demand, false)
		for i := range v.live {
			in := &v.live[i]
			f.Instances = append(f.Instances, joint.ExchangeInstance{
				Candidate: in.best(choices), ID: in.ID, Node: in.Node, Device: in.Device, Starting: in.State == cluster.Starting, Divided: in.Nodes != nil,
			})
		}
		f.Serves = func(with capacity.Candidate, crowded bool) float64 {
			if crowded {
				return v.packedRate(with)
			}
			return v.ranged(with, v.demand, false, &v.atDemand).Up
		}
		f.Demand = func(rps float64, crowded bool) joint.Demand { return p.demand(v, rps, crowded) }
		all[k] = f
	}
	return all
}
