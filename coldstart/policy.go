// Package coldstart decides when a function that nobody calls gives up its
// instances and when it gets one ahead of the next request (INFless §3.5). A
// [Policy] learns from idle times and answers with two windows; [Decide] turns
// these into points in time. It holds no clock: now is passed in.
package coldstart

import "time"

// Windows are the two windows of the hybrid histogram policy and of LSTH
// (INFless §3.5). Both are counted in idle time.
type Windows struct {
	// PreWarm is how long after the last execution a function stays without
	// an instance before it gets one. With 0 the instance is simply kept.
	PreWarm time.Duration
	// KeepAlive is how long the instance is kept: from the end of PreWarm,
	// thus from the last execution where PreWarm is 0.
	KeepAlive time.Duration
}

// Policy chooses the windows of functions. Implementations are state machines
// for one caller at a time; times never go back.
type Policy interface {
	// Observe tells of an idle time that ended now: how long the function
	// had no request before this one.
	Observe(now time.Time, function string, idle time.Duration)
	// Windows says how the function is to be treated now.
	Windows(now time.Time, function string) Windows
	// Forget drops all that is known of a function that was removed.
	Forget(function string)
}

// Decision is what a function's windows mean from its last activity on.
type Decision struct {
	// PreWarmAt is when an instance is to be started without a request; zero
	// if the instance is simply kept.
	PreWarmAt time.Time
	// RetireAt is from when on an idle function has no instance.
	RetireAt time.Time
}

// Decide applies windows to a function whose last request ended at last; now
// is not before last. With a pre-warming window, the function is retired at
// once and, when the window is over, started and kept: RetireAt is last until
// PreWarmAt, and the end of the keep-alive window from then on. A function is
// due for pre-warming while PreWarmAt ≤ now < RetireAt.
func Decide(last, now time.Time, w Windows) Decision {
	if w.PreWarm <= 0 {
		return Decision{RetireAt: last.Add(max(0, w.KeepAlive))}
	}
	d := Decision{PreWarmAt: last.Add(w.PreWarm), RetireAt: last}
	if !now.Before(d.PreWarmAt) {
		d.RetireAt = d.PreWarmAt.Add(max(0, w.KeepAlive))
	}
	return d
}
