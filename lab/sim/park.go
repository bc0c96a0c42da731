package sim

import (
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// park lets an instance give back its CPU and GPU share, unless it has work again. The
// simulation leaves out the time that this takes: no request waits for it.
func (r *run) park(s scaling.Park) {
	in, ok := r.instances[s.ID]
	if !ok || !in.serves() || !in.fn.carrier.Park(r.now, in.ID) {
		return
	}
	r.settle(in)
	in.Parked, in.away = true, true
	in.fn.ready--
	r.hold(in, in.Config.Parked())
	r.claim(in, in.holds)
	if r.window.Has(r.now) {
		r.result.Parks++
	}
}

// unpark lets a parked instance take up a share when the instances in s.After have left.
func (r *run) unpark(s scaling.Unpark) {
	in, ok := r.instances[s.ID]
	if !ok || in.State != cluster.Ready || !in.Parked {
		return
	}
	tables := r.times(in.fn, in.Artefact.Name, s.Config)
	if tables == nil {
		return
	}
	r.settle(in)
	in.Config, in.exec, in.mean, in.tables = s.Config, s.Exec, s.Mean, tables
	in.Parked = false
	r.claim(in, s.Config.Resources)
	if r.window.Has(r.now) {
		r.result.Unparks++
	}
	if r.awaits(in, s.After) == 0 {
		r.resume(in)
	}
}

// resume lets a parked instance hold its share. It serves after Unpark.
func (r *run) resume(in *instance) {
	r.settle(in)
	r.hold(in, in.Config.Resources)
	r.events.Plan(r.now+r.Unpark, back, in.slot, in.number)
}

// back lets an instance that was parked serve again.
func (r *run) back(in *instance) {
	if in.State != cluster.Ready {
		return
	}
	in.away = false
	in.fn.ready++
	r.up(in)
	r.wake()
}
