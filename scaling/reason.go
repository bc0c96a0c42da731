package scaling

import (
	"slices"
	"time"
)

// Why is the cause of an action, in the form of a log field or a metric's label.
type Why string

// The reasons to start an instance, to give it more CPU, or to let a parked one serve again.
const (
	// Waiting: requests wait, and no instance is ready.
	Waiting Why = "waiting"
	// Load: the load is above what the instances carry (§3.2, case (i)).
	Load Why = "load"
	// PeakLoad: the load was higher within the stabilisation window, and there is room.
	PeakLoad Why = "peak"
	// Minimum: the function keeps a number of instances without load, too.
	Minimum Why = "minimum"
	// Forecast: the cold-start policy expects a request (§3.5).
	Forecast Why = "forecast"
	// NewRevision: the instances are of an older revision.
	NewRevision Why = "new-revision"
	// Replacement: another instance is to be replaced, see [Running.Replace].
	Replacement Why = "replacement"
	// OtherForm: another variant, or another share of a GPU, serves the load for less.
	OtherForm Why = "other-form"
)

// The reasons to stop an instance, to lower its quota or to park it. Rearranged starts instances, too.
const (
	// Idle: the function had no request for its keep-alive time.
	Idle Why = "idle"
	// Surplus: the others carry the load (§3.2, case (iii)).
	Surplus Why = "surplus"
	// OverMax: the function has more instances than it may have.
	OverMax Why = "over-max"
	// Superseded: it is of an older revision.
	Superseded Why = "superseded"
	// Evicted: a function without any instance needs the room.
	Evicted Why = "evicted"
	// Unpaired: it is a shadow whose body is gone, and no other needs it. Or it may help no more.
	Unpaired Why = "unpaired"
	// Rearranged: fewer, larger instances carry more in the same room.
	Rearranged Why = "rearranged"
)

// Reason is the cause of an action with the figures by which the engine decided.
type Reason struct {
	Why Why
	// Load is the measured load. Needed is that with headroom, with the level by which missed objectives raise
	// it, and with the requests that wait. Carries is what the instances carried before the plan. All are
	// in requests/s.
	Load, Needed, Carries float64
	// Waiting is the number of requests that were in no instance.
	Waiting int
	// Idle is how long the instance had executed nothing; 0 if it held requests, or is not there yet.
	Idle time.Duration
	// For is the function that needs the room of the instance, "" if none does.
	For string
}

// reasonOf returns why v gets or loses something.
func reasonOf(v *view, why Why) Reason {
	if !v.reasoned {
		v.reasoned, v.carried = true, v.total().Up
	}
	return Reason{Why: why, Load: v.Rate, Needed: v.demand, Carries: v.carried, Waiting: v.Waiting}
}

// ofIdle adds how long an instance has executed nothing.
func (r Reason) ofIdle(now time.Time, in *Running) Reason {
	if !in.IdleSince.IsZero() {
		r.Idle = now.Sub(in.IdleSince)
	}
	return r
}

// whyStart is why a function gets another instance, or a parked one back.
func whyStart(v *view) Why {
	switch {
	case len(v.old) > 0:
		return whyReplaced(v.old, v.Revision)
	case v.count() > 0:
		return Load
	case v.Waiting > 0:
		return Waiting
	case v.floor > 0:
		return Minimum
	default:
		return Forecast
	}
}

// whyReplaced is why instances that are not current are replaced.
func whyReplaced(old []Running, revision uint64) Why {
	switch {
	case slices.ContainsFunc(old, func(in Running) bool { return in.Revision == 0 }):
		return Replacement
	case slices.ContainsFunc(old, func(in Running) bool { return in.Revision < revision }):
		return NewRevision
	default:
		return OtherForm
	}
}
