package policy

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// Tuner keeps what a system considers for one function while its load changes. It
// chooses anew only where the load, or how bursty it is, has changed by a good deal, and not at once
// again: a load that moves to and fro does not have instances exchanged, and
// asking costs nothing else.
type Tuner struct {
	system   System
	function Function
	times    Times
	rate     float64
	at       time.Time
	list     []scaling.Candidate
	revision uint64
	// arrivals is nil for a system that does not fit a process to them.
	arrivals *arrivals
}

// Tuner returns a tuner for a function with the given mean times.
func (s System) Tuner(f Function, t Times) *Tuner {
	u := &Tuner{system: s, function: f, times: t}
	if s.batching == batching.BatchName {
		u.arrivals = newArrivals()
	}
	return u
}

// Arrived tells of a request. Times must not go back.
func (u *Tuner) Arrived(at time.Time) {
	if u.arrivals != nil {
		u.arrivals.add(at)
	}
}

const (
	// retune is how many times as high, or as low, the load must have become.
	retune = 1.25
	// retunePause is the least time between two choices: what BATCH's optimiser
	// needs at least (§VI-D).
	retunePause = 10 * time.Second
)

// Candidates is [System.Candidates] for the load at now. The slice is the tuner's
// and must not be changed. revision is another one if other configs are considered
// than before: a driver of a system whose instances are all alike gives it to the
// function, so that instances of an earlier one are replaced. Where only timeouts
// change, it stays, and instances are to be told of them ([Tuner.Timeout]).
func (u *Tuner) Candidates(now time.Time, rate float64) (list []scaling.Candidate, revision uint64) {
	first := u.revision == 0
	same := rate <= u.rate*retune && rate*retune >= u.rate && (u.arrivals == nil || !u.arrivals.changed())
	if !first && (same || u.rate > 0 && now.Sub(u.at) < retunePause) {
		return u.list, u.revision
	}
	if u.arrivals != nil {
		u.function.Arrivals = u.arrivals.fit(rate)
	}
	next := u.system.Candidates(u.function, rate, u.times)
	u.rate, u.at = rate, now
	alike := func(a, b scaling.Candidate) bool { return a.Config == b.Config }
	if first || !slices.EqualFunc(next, u.list, alike) {
		u.revision++
	}
	u.list = next
	return u.list, u.revision
}

// Timeout is how long a batch's first request may wait on an instance with this
// config.
func (u *Tuner) Timeout(config cluster.Config) time.Duration {
	for _, c := range u.list {
		if c.Config == config {
			return c.Timeout
		}
	}
	return 0
}
