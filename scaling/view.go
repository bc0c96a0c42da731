package scaling

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
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
	sum, crest      capacity.Range
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
	short placing.Reason
	// allowed is what pass.allowed found.
	allowed placing.Allowed
	// now and then hold the ranges of instances at the demand and at the
	// peak, as far as they were asked for.
	now, then []ranged
}

// ranged is Eq. 1 of an instance with such a config and times.
type ranged struct {
	with   capacity.Candidate
	bounds capacity.Range
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
		Function: *f, engine: e, memory: e.memories[f.Name], joint: e.settings.Jointly(f.Queue),
		now: v.now[:0], then: v.then[:0],
	}
	if v.memory == nil {
		v.memory = &memory{}
		e.memories[f.Name] = v.memory
	}
	v.memory.About(e.settings.Options, f.SLO, f.Percentile, f.Queue, f.Configs)
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
func (v *view) wanted(rps float64) capacity.Demand {
	return capacity.Demand{RPS: rps, SLO: v.SLO, Percentile: v.Percentile, Configs: v.Configs, Queue: v.Queue, Nodes: v.Nodes, Load: max(v.demand, rps)}
}

// choices are what instances of the function may be, as a part of its load, or of
// rps if that is more. They must not be changed.
func (v *view) choices(rps float64, crowded bool) []capacity.Choice {
	return v.memory.Choices(max(v.demand, rps), crowded)
}

// bounds is Eq. 1 of one of the function's instances at the demand, peaked at
// the peak.
func (v *view) bounds(in *Running) capacity.Range { return v.ranged(in.with(), v.demand, &v.now) }

func (v *view) peaked(in *Running) capacity.Range {
	if v.peak == v.demand {
		return v.bounds(in)
	}
	return v.ranged(in.with(), v.peak, &v.then)
}

// ranged is the range of an instance at a load; functions have few configs, and
// each is asked for many times.
func (v *view) ranged(with capacity.Candidate, load float64, known *[]ranged) capacity.Range {
	for i := range *known {
		if k := &(*known)[i]; k.with == with {
			return k.bounds
		}
	}
	r := v.memory.Range(with, load)
	*known = append(*known, ranged{with, r})
	return r
}

// total is [R_min, R_max] of the instances at the demand.
func (v *view) total() capacity.Range {
	if !v.summed {
		v.sum, v.summed = total(v.live, v.bounds), true
	}
	return v.sum
}

// high is [R_min, R_max] of the instances at the peak.
func (v *view) high() capacity.Range {
	if v.peak == v.demand {
		return v.total()
	}
	if !v.crested {
		v.crest, v.crested = total(v.live, v.peaked), true
	}
	return v.crest
}

func total(set []Running, bounds func(*Running) capacity.Range) capacity.Range {
	var sum capacity.Range
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
	return v.short == placing.None && !v.robbed && !v.retired && (v.count() > 0 || v.floor > 0)
}

// mayEvict reports whether the function may take the room of others: only for
// requests or instances that must be, not for what might be needed.
func (v *view) mayEvict() bool { return v.Waiting > 0 || v.floor > 0 }
