package scaling

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// release stops the instances that are not needed: all of an idle function, those above
// Max, and the surplus of case (iii).
func (p *pass) release(v *view) {
	if v.idle && v.floor == 0 {
		v.retired = true
		for _, in := range slices.Concat(v.live, v.parked, v.old) {
			p.stop(v, in, Idle)
		}
		return
	}
	if over := v.all() - v.Max; v.Max > 0 && over > 0 {
		for _, in := range v.worstFirst()[:over] {
			p.stop(v, in, OverMax)
		}
	}
	p.park(v)
	if p.engine.settings.KeepAlive > 0 {
		p.expire(v)
		return
	}
	if !settled(v, p.now) {
		return
	}
	before := len(v.live)
	if p.surplus(v); len(v.live) == before {
		p.relax(v)
	}
}

// expire stops the instances that have been idle for KeepAlive.
func (p *pass) expire(v *view) {
	for _, in := range slices.Clone(v.live) {
		old := in.State == cluster.Ready && !in.IdleSince.IsZero() && p.now.Sub(in.IdleSince) >= p.engine.settings.KeepAlive
		if old && len(v.live) > v.floor {
			p.stop(v, in, Idle)
		}
	}
}

// surplus is case (iii): it stops instances until the load is back in the band or the
// others could not carry it. Parked instances count as capacity, but none of them
// replaces one that serves.
func (p *pass) surplus(v *view) {
	if v.all() <= max(1, v.floor) {
		return
	}
	s := p.engine.settings
	live, parked := v.high(), total(v.parked, v.peaked)
	under := func() bool {
		all := capacity.Range{Low: live.Low + parked.Low, Up: live.Up + parked.Up}
		return v.peak < capacity.Threshold(all, s.Alpha) && v.all() > max(1, v.floor)
	}
	if !under() || len(v.parked) == 0 && !v.hasSlack(live.Up-v.peak) {
		return
	}
	for _, in := range v.worstFirst() {
		r, left := v.peaked(&in), &live
		if in.Parked {
			left = &parked
		}
		if left == &live && (live.Up-r.Up < v.peak || !spares(v, &in, r.Up)) || live.Up+parked.Up-r.Up < v.peak {
			continue
		}
		left.Low, left.Up = left.Low-r.Low, left.Up-r.Up
		if p.stop(v, in, Surplus); !under() {
			return
		}
	}
}

// hasSlack reports whether some instance serves at most up at the peak.
func (v *view) hasSlack(up float64) bool {
	for i := range v.live {
		if v.peaked(&v.live[i]).Up <= up {
			return true
		}
	}
	return false
}

// worstFirst orders the instances, the parked ones first, by the load that they carry per
// resource (the numerator of Eq. 10, capped by the peak). So a large instance goes first
// at a small load, and an inefficient one at a large load.
func (v *view) worstFirst() []Running {
	options := v.engine.settings.Options
	carries := func(in Running) float64 {
		return min(v.peaked(&in).Up, v.peak) / max(options.Weigh(in.Config.Resources), 1e-9)
	}
	worst := slices.Concat(v.parked, v.live)
	slices.SortFunc(worst, func(a, b Running) int {
		return cmp.Or(
			parkedFirst(a, b),
			cmp.Compare(carries(a), carries(b)),
			cmp.Compare(options.Weigh(b.Config.Resources), options.Weigh(a.Config.Resources)),
			cmp.Compare(v.peaked(&a).Up, v.peaked(&b).Up),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return worst
}

// supersede stops instances of older revisions once the newer ones are ready and carry
// the load or have reached Max. If there is no room for enough newer ones, it exchanges
// them (succeed).
func (p *pass) supersede(v *view) {
	if len(v.old) == 0 || len(v.live)+len(v.parked) == 0 || v.started > 0 {
		return
	}
	for _, in := range v.live {
		if in.State != cluster.Ready {
			return
		}
	}
	switch {
	case v.short == placing.NoRoom && v.memory.departure.from != nil:
		v.memory.departure.from = nil // Others took the room meanwhile, so these stay.
	case v.short == placing.NoRoom:
		succeed(p, v)
	case v.short == placing.AtLimit, v.capacity() >= v.demand && v.residual() == 0 && v.all() >= v.floor:
		for _, in := range slices.Clone(v.old) {
			p.stop(v, in, Superseded)
		}
	}
}

// maxSucceeding is how many instances of a function a plan exchanges for those of a newer revision.
const maxSucceeding = 8

// succeed stops instances of older revisions where there is no room for both, and starts newer ones in
// their room. Before, the first newer one has become ready, so they start well. Only one revision
// answers at a time, so it goes on until the newer ones carry as much as the others, which the newer
// ones then replace at once: one exchange after the other would leave the function short for longer.
//
// For example, 8 instances fill the machine. The first of them has made room before. Then 3 are
// exchanged together, and 4 newer ones take over from the other 4.
func succeed(p *pass, v *view) {
	for n := range maxSucceeding {
		if n > 0 && (len(v.old) == 0 || v.capacity() >= total(v.old, v.bounds).Up) {
			return
		}
		rps, why := max(v.residual(), capacity.SomeLoad), whyStart(v)
		if !evictAny(p, v, v.wanted(rps), make([][]victim, len(p.space().Places))) {
			if n == 0 {
				p.stop(v, v.old[0], Superseded)
			}
			return
		}
		p.start(v, p.more(v, rps).Placed, why)
	}
}
