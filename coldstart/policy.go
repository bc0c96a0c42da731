// Package coldstart decides when a function that nobody calls gives up its
// instances and when it gets one ahead of the next request (INFless §3.5). A
// [Policy] learns from idle times and answers with windows; [Decide] turns
// these into points in time. It holds no clock: now is passed in.
package coldstart

import "time"

// Windows say when a function that is idle has an instance, counted in idle
// time, which is the time since its last execution ended. The first two are
// those of the hybrid histogram policy and of LSTH (INFless §3.5).
type Windows struct {
	// PreWarm is how long after the last execution a function stays without
	// an instance before it gets one. With 0 the instance is simply kept.
	PreWarm time.Duration
	// KeepAlive is how long the instance is kept: from the end of PreWarm,
	// thus from the last execution where PreWarm is 0.
	KeepAlive time.Duration
	// Later are windows after that, in order and apart from each other; most
	// policies have none. A function that is called in bursts by a timer is
	// kept for a moment and then pre-warmed for the timer's next tick.
	Later []Window
	// Park is how long an instance has executed nothing when it gives back the
	// CPU and the GPU share that are reserved for it. It stays loaded and takes
	// them up again with the next request. With 0 it holds on to them.
	Park time.Duration
}

// Window is a span of idle time during which there is an instance.
type Window struct {
	From, To time.Duration
}

// Policy chooses the windows of functions. Implementations are state machines
// for one caller at a time; times never go back.
type Policy interface {
	// Observe tells of an idle time that ended now: how long the function
	// had no request before this one. Idle times too short for the caller to
	// see may be left out, all others are told.
	Observe(now time.Time, function string, idle time.Duration)
	// Windows says how the function is to be treated while it is idle; last is
	// when its last execution ended. They are the same until the next
	// request, however long that takes.
	Windows(last time.Time, function string) Windows
	// Forget drops all that is known of a function that was removed.
	Forget(function string)
	// Marshal is what is known of a function, in at most some KiB, for
	// Restore after a restart; nil if nothing is known.
	Marshal(function string) []byte
	// Restore takes up what Marshal gave, in place of what is known. State
	// of another policy or version, or a damaged one, is an error; then
	// nothing changes.
	Restore(function string, state []byte) error
}

// Decision is what a function's windows mean from its last activity on.
type Decision struct {
	// PreWarmAt is when an instance is to be started without a request; zero
	// if the instance is simply kept.
	PreWarmAt time.Time
	// RetireAt is from when on an idle function has no instance.
	RetireAt time.Time
	// ParkAt is from when on what instances an idle function has hold memory
	// only; zero if they hold on to their CPU and GPU share.
	ParkAt time.Time
}

// Decide applies windows to a function whose last request ended at last; now
// is not before last. It looks at the window in which now lies, or the next
// one, or, when all are over, the last one. If there is a time without an
// instance before that window, the function is retired until the window
// begins, and then started and kept: RetireAt lies in the past until PreWarmAt,
// and is the end of the window from then on. A function is due for pre-warming
// while PreWarmAt ≤ now < RetireAt.
func Decide(last, now time.Time, w Windows) Decision {
	from := max(0, w.PreWarm)
	current := Window{from, from + max(0, w.KeepAlive)}
	retired := time.Duration(0)
	for _, next := range w.Later {
		if now.Before(last.Add(current.To)) {
			break
		}
		retired, current = current.To, next
	}
	var d Decision
	if w.Park > 0 {
		d.ParkAt = last.Add(w.Park)
	}
	if current.From <= 0 {
		d.RetireAt = last.Add(current.To)
		return d
	}
	d.PreWarmAt, d.RetireAt = last.Add(current.From), last.Add(retired)
	if !now.Before(d.PreWarmAt) {
		d.RetireAt = last.Add(current.To)
	}
	return d
}
