package scaling

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// observe returns a view of each function.
func (e *Engine) observe(now time.Time, functions []Function) []*view {
	if e.pointers = e.pointers[:0]; cap(e.views) < len(functions) {
		e.views = make([]view, len(functions))
	}
	e.views = e.views[:cap(e.views)]
	for i := range functions {
		e.pointers = append(e.pointers, e.views[i].observe(e, now, &functions[i]))
	}
	return e.pointers
}

// observe sets v to the view of a function at now.
func (v *view) observe(e *Engine, now time.Time, f *Function) *view {
	*v = view{
		Function: *f, engine: e, memory: e.memories[f.Name], joint: e.settings.Jointly(f.Queue),
		atDemand: v.atDemand[:0], atPeak: v.atPeak[:0],
	}
	if v.memory == nil {
		v.memory = &memory{}
		e.memories[f.Name] = v.memory
	}
	v.sets = sets(v.Classes, v.Configs)
	v.memory.About(e.settings.Options, f.SLO, f.Percentile, f.Queue, f.Configs)
	idle := v.sort() && f.Waiting <= 0
	if v.floor = max(0, f.Min); !f.ScaleToZero {
		v.floor = max(1, v.floor)
	}
	if f.Max > 0 {
		v.floor = min(v.floor, f.Max)
	}
	retire := !f.RetireAt.IsZero() && !now.Before(f.RetireAt) && (f.RetireStated || !keeps(v, now))
	v.prewarm = !f.PreWarmAt.IsZero() && !now.Before(f.PreWarmAt) && !retire
	v.idle = idle && retire
	v.resting = idle && !f.ParkAt.IsZero() && !now.Before(f.ParkAt)
	v.memory.note(now, v)
	findShadows(v)
	v.steady, v.demand = v.load(now)
	remember(v, now)
	v.memory.rise.observe(now, v.demand, v.peak)
	return v
}

// sort divides the function's instances into live, parked and old, by ID. Mostly they
// need no change and are not copied. It reports whether all of them are idle.
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
		tidy = tidy && (in.State == cluster.Starting || in.State == cluster.Ready) && v.current(in) &&
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
	v.owned, v.live = true, make([]Running, 0, len(v.Instances))
	for i := range v.Instances {
		switch in := &v.Instances[i]; {
		case in.State != cluster.Starting && in.State != cluster.Ready:
		case !v.current(in):
			v.old = append(v.old, *in)
		case in.Parked:
			v.parked = append(v.parked, *in)
		default:
			v.live = append(v.live, *in)
		}
	}
	byID := func(a, b Running) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(v.live, byID)
	slices.SortFunc(v.old, byID)
	slices.SortFunc(v.parked, byID)
	return idle
}

// keeps reports whether an idle function keeps its instances although the cold-start policy, not
// the user, says that they go: one of them has been idle for less than EvictLoads times as long as it took to load. Loading
// it again would take longer than it could have been gone.
func keeps(v *view, now time.Time) bool {
	loads := v.engine.settings.EvictLoads
	return slices.ContainsFunc(v.live, func(in Running) bool { return in.lives(now, loads) }) ||
		slices.ContainsFunc(v.parked, func(in Running) bool { return in.lives(now, loads) })
}

// lives reports whether an idle instance of another function keeps its room although a patient
// function needs it. Otherwise two functions that take turns on a node with room for one would
// load at each call.
//
// An instance that took L to load keeps its room until it has been idle for loads·L. So of
// the time between two loads on the same room, at most 1 of 1 + loads parts is spent on
// loading: a third with 2.
func (in *Running) lives(now time.Time, loads float64) bool {
	return !in.IdleSince.IsZero() && float64(now.Sub(in.IdleSince)) < loads*float64(in.Loading)
}
