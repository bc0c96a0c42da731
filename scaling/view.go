package scaling

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// view is one function in one pass.
type view struct {
	Function
	engine *Engine
	memory *memory
	// live are the Starting and Ready instances of the current revision, old
	// those of older ones; both by ID. owned: live is not the caller's.
	live, old []Running
	owned     bool
	// parked are those of the current revision that are parked, by ID; they count
	// neither as live nor as capacity.
	parked []Running
	// sum and crest are the ranges of all in live at the demand and at the
	// peak, if summed and crested.
	sum, crest      Range
	summed, crested bool
	// steady is the measured load with headroom, demand that and the burst
	// of waiting requests, peak the highest demand of the window; all in
	// requests per second.
	steady, demand, peak float64
	// joint: it is planned for together with others.
	joint bool
	// floor is how many instances there must be.
	floor int
	// prewarm: the cold-start policy wants an instance without a request.
	// idle: nothing is executed or waits, and the keep-alive is over.
	prewarm, idle bool
	// resting: nothing is executed or waits, and the instances are to be parked.
	// woken: some are unparked by this plan.
	resting, woken bool
	// retired: all instances are stopped by this plan.
	retired bool
	// robbed: some of its instances make room for others; it must not take
	// it back in the same plan.
	robbed bool
	// started and startedUp count what this plan starts.
	started   int
	startedUp float64
	// short is why this plan leaves load unplaced.
	short Reason
	// allowed is what pass.allowed found.
	allowed allowed
	// now and then hold the ranges of instances at the demand and at the
	// peak, as far as they were asked for.
	now, then []ranged
}

// ranged is Eq. 1 of an instance with such a config and times.
type ranged struct {
	config     cluster.Config
	exec, mean time.Duration
	bounds     Range
}

// look takes the functions in.
func (e *Engine) look(now time.Time, functions []Function) []*view {
	if e.pointers = e.pointers[:0]; cap(e.views) < len(functions) {
		e.views = make([]view, len(functions))
	}
	e.views = e.views[:cap(e.views)]
	for i := range functions {
		e.pointers = append(e.pointers, e.views[i].look(e, now, &functions[i]))
	}
	return e.pointers
}

// look takes a function in.
func (v *view) look(e *Engine, now time.Time, f *Function) *view {
	*v = view{
		Function: *f, engine: e, memory: e.memories[f.Name], joint: e.settings.Joint && f.Queue == LateBound,
		now: v.now[:0], then: v.then[:0],
	}
	if v.memory == nil {
		v.memory = &memory{}
		e.memories[f.Name] = v.memory
	}
	v.memory.about(f)
	idle := v.sort() && f.Waiting <= 0
	if v.floor = max(0, f.Min); !f.ScaleToZero {
		v.floor = max(1, v.floor)
	}
	if f.Max > 0 {
		v.floor = min(v.floor, f.Max)
	}
	retire := !f.RetireAt.IsZero() && !now.Before(f.RetireAt)
	v.prewarm = !f.PreWarmAt.IsZero() && !now.Before(f.PreWarmAt) && !retire
	v.idle = idle && retire
	v.resting = idle && !f.ParkAt.IsZero() && !now.Before(f.ParkAt)
	v.steady, v.demand = v.load(now)
	v.peak = v.highest(now)
	return v
}

// sort takes the function's instances in, by ID. Most often they are as they
// should be, and are not copied. It reports whether none of them executes
// anything.
func (v *view) sort() (idle bool) {
	idle, tidy, parked := true, true, 0
	for i := range v.Instances {
		in := &v.Instances[i]
		if in.State == cluster.Ready && !in.Parked && in.IdleSince.IsZero() {
			idle = false
		}
		if in.Parked {
			parked++
		}
		tidy = tidy && (in.State == cluster.Starting || in.State == cluster.Ready) && in.Revision >= v.Revision &&
			(i == 0 || v.Instances[i-1].ID < in.ID)
	}
	switch {
	case tidy && parked == 0:
		v.live = v.Instances
		return idle
	case tidy && parked == len(v.Instances):
		v.parked = slices.Clip(v.Instances)
		return idle
	}
	v.owned = true
	for _, in := range v.Instances {
		switch {
		case in.State != cluster.Starting && in.State != cluster.Ready:
		case in.Revision < v.Revision:
			v.old = append(v.old, in)
		case in.Parked:
			v.parked = append(v.parked, in)
		default:
			v.live = append(v.live, in)
		}
	}
	byID := func(a, b Running) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(v.live, byID)
	slices.SortFunc(v.old, byID)
	slices.SortFunc(v.parked, byID)
	return idle
}

// changed is called before an instance is changed or removed.
func (v *view) changed() {
	if !v.owned {
		v.live, v.owned = slices.Clone(v.live), true
	}
	v.summed, v.crested = false, false
}

// wanted is a demand of rps for the function, which is a part of its load.
func (v *view) wanted(rps float64) Demand {
	return Demand{RPS: rps, SLO: v.SLO, Percentile: v.Percentile, Configs: v.Configs, Queue: v.Queue, Nodes: v.Nodes, load: max(v.demand, rps)}
}

// bounds is Eq. 1 of one of the function's instances at the demand, peaked at
// the peak.
func (v *view) bounds(in *Running) Range { return v.ranged(in, v.demand, &v.now) }

func (v *view) peaked(in *Running) Range {
	if v.peak == v.demand {
		return v.bounds(in)
	}
	return v.ranged(in, v.peak, &v.then)
}

// ranged is the range of an instance at a load; functions have few configs, and
// each is asked for many times.
func (v *view) ranged(in *Running, load float64, known *[]ranged) Range {
	for i := range *known {
		if k := &(*known)[i]; k.config == in.Config && k.exec == in.Exec && k.mean == in.Mean {
			return k.bounds
		}
	}
	r := v.recalled(in, load)
	*known = append(*known, ranged{in.Config, in.Exec, in.Mean, r})
	return r
}

// total is [R_min, R_max] of the instances at the demand.
func (v *view) total() Range {
	if !v.summed {
		v.sum, v.summed = total(v.live, v.bounds), true
	}
	return v.sum
}

// high is [R_min, R_max] of the instances at the peak.
func (v *view) high() Range {
	if v.peak == v.demand {
		return v.total()
	}
	if !v.crested {
		v.crest, v.crested = total(v.live, v.peaked), true
	}
	return v.crest
}

func total(set []Running, bounds func(*Running) Range) Range {
	var sum Range
	for i := range set {
		r := bounds(&set[i])
		sum.Low, sum.Up = sum.Low+r.Low, sum.Up+r.Up
	}
	return sum
}

// count is how many instances of the current revision there will be, without those
// that stay parked.
func (v *view) count() int { return len(v.live) + v.started }

// capacity is R_max of the instances that there will be.
func (v *view) capacity() float64 { return v.total().Up + v.startedUp }

// remove forgets an instance that is to be stopped.
func (v *view) remove(id cluster.InstanceID) {
	v.changed()
	is := func(in Running) bool { return in.ID == id }
	v.live = slices.DeleteFunc(v.live, is)
	v.old = slices.DeleteFunc(v.old, is)
	if slices.ContainsFunc(v.parked, is) { // It may be the caller's.
		v.parked = slices.DeleteFunc(slices.Clone(v.parked), is)
	}
}

// wantsFirst reports whether the function has no instance and needs one. A
// measured load alone is no reason: it lags, and the first request that finds
// no instance waits. A parked one is there already.
func (v *view) wantsFirst() bool {
	switch {
	case v.count() > 0 || v.retired || v.robbed:
		return false
	case len(v.parked) > 0:
		return v.Waiting > 0 || v.floor > 0
	}
	return v.Waiting > 0 || v.prewarm || v.floor > 0 || len(v.old) > 0
}

// mayGrow reports whether the function may get more instances than it has, or a
// first.
func (v *view) mayGrow() bool {
	return v.short == None && !v.robbed && !v.retired && (v.count() > 0 || v.floor > 0)
}

// mayEvict reports whether the function may take the room of others: only for
// requests or instances that must be, not for what might be needed.
func (v *view) mayEvict() bool { return v.Waiting > 0 || v.floor > 0 }

// release stops what is not needed: all of an idle function, what is above
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
	if !v.memory.settled(p.now, p.engine.settings.Stabilisation) {
		return
	}
	before := len(v.live)
	if p.surplus(v); len(v.live) == before {
		p.relax(v)
	}
}

// expire stops the instances that have been idle for as long as each is kept.
func (p *pass) expire(v *view) {
	for _, in := range slices.Clone(v.live) {
		old := in.State == cluster.Ready && !in.IdleSince.IsZero() && p.now.Sub(in.IdleSince) >= p.engine.settings.KeepAlive
		if old && len(v.live) > v.floor {
			p.stop(v, in, Idle)
		}
	}
}

// surplus is case (iii): it stops instances until the load is back in the band
// or the others could not carry it. What is parked could carry load, too, but not in
// place of one that does.
func (p *pass) surplus(v *view) {
	s := p.engine.settings
	live, parked := v.high(), total(v.parked, v.peaked)
	under := func() bool {
		all := Range{live.Low + parked.Low, live.Up + parked.Up}
		return v.peak < Threshold(all, s.Alpha, s.Reading) && v.all() > max(1, v.floor)
	}
	if !under() || len(v.parked) == 0 && !v.spares(live.Up-v.peak) {
		return
	}
	for _, in := range v.worstFirst() {
		r, left := v.peaked(&in), &live
		if in.Parked {
			left = &parked
		}
		if left == &live && live.Up-r.Up < v.peak || live.Up+parked.Up-r.Up < v.peak {
			continue
		}
		left.Low, left.Up = left.Low-r.Low, left.Up-r.Up
		if p.stop(v, in, Surplus); !under() {
			return
		}
	}
}

// spares reports whether some instance serves no more than that at the peak.
func (v *view) spares(up float64) bool {
	for i := range v.live {
		if v.peaked(&v.live[i]).Up <= up {
			return true
		}
	}
	return false
}

// worstFirst orders the instances, the parked ones first, by what they carry of the
// load per resource (the numerator of Eq. 10, capped by the peak), so that a large
// instance goes first where the load is small, and an inefficient one where it is
// not.
func (v *view) worstFirst() []Running {
	options := v.engine.settings.Options
	carries := func(in Running) float64 {
		return min(v.peaked(&in).Up, v.peak) / max(options.weigh(in.Config.Resources), 1e-9)
	}
	worst := slices.Concat(v.parked, v.live)
	slices.SortFunc(worst, func(a, b Running) int {
		return cmp.Or(
			parkedFirst(a, b),
			cmp.Compare(carries(a), carries(b)),
			cmp.Compare(options.weigh(b.Config.Resources), options.weigh(a.Config.Resources)),
			cmp.Compare(v.peaked(&a).Up, v.peaked(&b).Up),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return worst
}

// supersede stops instances of older revisions once the newer ones are ready
// and carry the load, or have all the instances they may have. Where there is
// no room for enough of the newer ones, the older ones go one by one.
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
	case v.short == NoRoom:
		p.stop(v, v.old[0], Superseded)
	case v.short == AtLimit, v.capacity() >= v.demand && v.all() >= v.floor:
		for _, in := range slices.Clone(v.old) {
			p.stop(v, in, Superseded)
		}
	}
}
