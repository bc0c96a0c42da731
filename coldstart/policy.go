// Package coldstart decides when an idle function loses its instances and when it gets
// one ahead of the next request (INFless §3.5). A [Policy] learns from idle times and
// returns windows; [Decide] turns these into points in time. The package starts and
// stops nothing and has no clock: the caller passes in now. Begin with [Policy], then
// [Priced], the project's own.
package coldstart

import "time"

// Windows say when an idle function has an instance. They count in idle time, the time
// since its last execution ended. PreWarm and KeepAlive are those of the hybrid
// histogram policy and of LSTH (INFless §3.5).
type Windows struct {
	// PreWarm is how long after the last execution a function stays without
	// an instance before it gets one. With 0 the instance is kept.
	PreWarm time.Duration
	// KeepAlive is how long the instance is kept after the end of PreWarm. If PreWarm
	// is 0, that is the time after the last execution.
	KeepAlive time.Duration
	// Later has the windows after that, in order and apart from each other; most
	// policies have none. For example a timer calls a function in bursts: the function
	// is kept for a moment, and then pre-warmed for the timer's next tick.
	Later []Window
	// Park is how long an instance is idle before it gives back its reserved CPU and
	// GPU share. It stays loaded and takes the share again with the next request. With
	// 0 it keeps the share.
	Park time.Duration
}

// Window is a span of idle time in which the function has an instance.
type Window struct {
	From, To time.Duration
}

// Policy chooses the windows of functions. Implementations are state machines
// for one caller at a time; times never go back.
type Policy interface {
	// Observe reports an idle time that ended now: how long the function had no request
	// before this one. The caller may leave out idle times that are too short for it to
	// see. It must report all others.
	Observe(now time.Time, function string, idle time.Duration)
	// Windows returns the function's windows while it is idle; last is when its last
	// execution ended. They stay the same until the next request, however long that
	// takes.
	Windows(last time.Time, function string) Windows
	// Forget drops the state of a removed function.
	Forget(function string)
	// Marshal returns a function's state for Restore after a restart, in at most some
	// KiB. It returns nil if there is none.
	Marshal(function string) []byte
	// Restore replaces a function's state by one from Marshal. It fails if the state is
	// damaged or of another policy or version, and then changes nothing.
	Restore(function string, state []byte) error
}

// Decision is a function's windows as points in time.
type Decision struct {
	// PreWarmAt is when an instance must start without a request. It is zero if the
	// instance is kept.
	PreWarmAt time.Time
	// RetireAt is when an idle function loses its instances.
	RetireAt time.Time
	// ParkAt is when an idle function's instances give back their CPU and GPU share and
	// hold memory only. It is zero if they keep it.
	ParkAt time.Time
}

// Decide applies windows to a function whose last request ended at last; now must not be
// before last. It takes the window in which now lies, otherwise the next one, or the
// last one after all are over. If there is a time without an instance before that
// window, the function is retired until the window begins, and then started and kept.
// RetireAt then lies in the past until PreWarmAt, and is the window's end from then on.
// A function is due for pre-warming while PreWarmAt ≤ now < RetireAt.
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
