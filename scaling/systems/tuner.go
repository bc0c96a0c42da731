package systems

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// Tuner keeps the candidates of one function while its load changes. It chooses again only if
// the load, its burstiness, the room for instances or their execution times changed clearly,
// and not again for a pause. So a load that moves to and fro does not cause exchanges, and
// most calls are cheap.
//
// For BATCH it checks the present choice first. It searches for another only if the present
// one no longer meets the objective or could cost clearly less. It remembers the loads for
// which the choice was confirmed.
type Tuner struct {
	system   System
	function Function
	times    Times
	rate     float64
	at       time.Time
	list     []capacity.Candidate
	revision uint64
	// arrivals is nil for a system that does not fit a process to them.
	arrivals *arrivals
	// tuning is nil except for a system whose choices follow from it alone.
	tuning Tuning
	// room is nil if every batch has an instance. none, fit and instances are from the
	// time of the choice: the resources without room, the number of instances of the
	// choice for which there was room, and the number that it needs.
	room      Room
	none      []cluster.Resources
	fit       int
	instances int
	phases    int
	// exec is the mean time of a full batch of the choice, when it was made.
	exec time.Duration
	// confirmed has the loads for which the choice is right, peaks the recent peak load.
	// busy is when there last was a load. Another choice has been cheaper since since, and
	// must be looked at again at due.
	confirmed        confirmed
	peaks            peaks
	busy, since, due time.Time
	// looked is when the tuner last looked at more than the load.
	looked time.Time
	// idle is whether there was no load at the last look.
	idle bool
}

// Tuning chooses for one function in place of a [Tuner]'s own rules. All instances have one config,
// with its batch size and timeout.
type Tuning interface {
	// Arrived records a request. Times do not go back.
	Arrived(at time.Time)
	// Due returns the search that is due at now for a load of rate requests per second, nil if none is.
	// first says that nothing is chosen yet.
	Due(now time.Time, rate float64, first bool) *Search
}

// Tuner returns a tuner for a function with the given mean times.
func (s System) Tuner(f Function, t Times) *Tuner {
	u := &Tuner{system: s, function: f, times: t}
	switch {
	case s.rules.Tuning != nil:
		u.tuning = s.rules.Tuning(f, t)
	case batching.Of(s.rules.Batching).Tuned:
		u.arrivals = newArrivals()
	}
	return u
}

// Arrived records a request. Times must not go back.
func (u *Tuner) Arrived(at time.Time) {
	switch {
	case u.tuning != nil:
		u.tuning.Arrived(at)
	case u.arrivals != nil:
		u.arrivals.add(at)
	}
}

// tuned reports whether all instances have one config, with BATCH's batch size and timeout.
func (u *Tuner) tuned() bool { return u.arrivals != nil || u.tuning != nil }

// Within sets the room for instances. Call it before [Tuner.Candidates].
func (u *Tuner) Within(room Room) { u.room = room }

// Instances is the least number of instances that meets the objective at the load of the
// choice. It is 0 if the system has no such number or there is no load.
func (u *Tuner) Instances() int {
	if u.idle {
		return 0
	}
	return u.instances
}

// Phases is the number of phases of the arrivals for which the choice was made. It is 0 if
// the choice was made for the recorded requests, because no process fits them.
func (u *Tuner) Phases() int { return u.phases }

const (
	// retune is the factor by which the load must rise or fall before a new choice.
	retune = 1.25
	// retunePause is the least time between two choices: the minimum that BATCH's
	// optimiser needs (§VI-D).
	retunePause = 10 * time.Second
	// lookPause is the least time between two looks at more than the load.
	lookPause = time.Second
	// slower is the relative change of a full batch's time that needs a new choice.
	slower = 0.1
)

// Candidates is [System.Candidates] for the load at now. The caller must not change the
// slice. revision changes when the configs change. In a system whose instances are all
// alike, a driver sets it as the function's revision, which replaces earlier instances. If
// only BATCH's batch size or timeout changes, revision stays, and the driver must tell the
// instances ([Tuner.Choice]).
func (u *Tuner) Candidates(now time.Time, rate float64) (list []capacity.Candidate, revision uint64) {
	if x := u.Begin(now, rate); x != nil {
		x.Run()
		return u.Take(x)
	}
	return u.list, u.revision
}

// Begin is Candidates for callers that cannot wait. If a new choice is due, it returns the
// search: run it on any goroutine, then pass it to [Tuner.Take]. Otherwise it returns nil.
// For BATCH, no load causes no search. A load below one request in the keep-alive time counts
// as none.
func (u *Tuner) Begin(now time.Time, rate float64) *Search {
	first := u.revision == 0
	if u.tuning != nil {
		return u.tuning.Due(now, rate, first)
	}
	if u.arrivals != nil && !(rate >= 1/peakMemory.Seconds()) {
		rate = 0
	} else if u.arrivals != nil {
		rate = max(rate, u.lowest())
	}
	u.idle = rate == 0
	if u.arrivals != nil && rate > 0 {
		if now.Sub(u.busy) > baselineKeepAlive {
			u.rate = 0 // No instances are left that could be kept.
		}
		u.busy = now
		u.peaks.add(now, rate)
	} else if u.arrivals != nil && !first {
		return nil
	}
	if !first && (u.rate > 0 && now.Sub(u.at) < retunePause || !u.changed(now, rate)) {
		return nil
	}
	before := u.rate
	u.rate, u.at = rate, now
	return u.search(before, rate)
}

// lowest is the load in requests per second below which all loads count as equal.
func (u *Tuner) lowest() float64 {
	if u.function.SLO <= 0 {
		return minLoad
	}
	return minLoad / u.function.SLO.Seconds()
}

// Take makes the result of a search the tuner's choice.
func (u *Tuner) Take(x *Search) (list []capacity.Candidate, revision uint64) {
	alike := func(a, b capacity.Candidate) bool {
		return a.Artefact == b.Artefact && a.Config == b.Config || u.tuned() && a.Config.Resources == b.Config.Resources
	}
	if u.revision == 0 || !slices.EqualFunc(x.list, u.list, alike) {
		u.revision++
	}
	if !slices.EqualFunc(x.list, u.list, func(a, b capacity.Candidate) bool { return a.Config == b.Config && a.Timeout == b.Timeout }) {
		u.confirmed.forget()
	}
	u.list, u.instances, u.phases = x.list, x.instances, x.phases
	u.since, u.due, u.fit = x.since, x.due, x.fit
	if u.exec = u.full(); u.since.IsZero() && x.rate > 0 && !x.short {
		u.confirmed.add(x.now, x.rate, u.instances)
	}
	return u.list, u.revision
}

// changed reports whether the load, its shape, the room or the execution times changed since
// the choice. If the choice is confirmed for the new load, changed sets the tuner to that load
// and returns false.
func (u *Tuner) changed(now time.Time, rate float64) bool {
	moved := rate > u.rate*retune || rate*retune < u.rate
	if u.arrivals == nil || !moved && now.Sub(u.looked) < lookPause {
		return moved
	}
	u.looked = now
	if u.arrivals.changed() || rate > 0 && (u.crowded() || u.slower()) {
		u.confirmed.forget()
		return true
	}
	if !moved {
		return !u.due.IsZero() && !now.Before(u.due)
	}
	instances, ok := u.confirmed.of(now, rate)
	if !ok {
		return true
	}
	u.rate, u.instances = rate, instances
	if !u.since.IsZero() {
		u.since, u.due = time.Time{}, time.Time{}
	}
	return false
}

// slower reports whether the time of the choice's batches changed, up or down.
func (u *Tuner) slower() bool {
	now := u.full()
	return now > 0 && u.exec > 0 && math.Abs(float64(now)/float64(u.exec)-1) > slower
}

// full is the mean time of a full batch of the choice, 0 if it is not known.
func (u *Tuner) full() time.Duration {
	if len(u.list) == 0 {
		return 0
	}
	exec, _ := u.times.Exec(u.list[0].Config, u.list[0].Config.Batch)
	return exec
}

// crowded reports whether the chosen instances no longer have room, or whether a config that
// had none before now has room and may be better.
func (u *Tuner) crowded() bool {
	if u.room == nil || len(u.list) == 0 {
		return false
	}
	return u.room(u.list[0].Config.Resources) < min(u.instances, u.fit) || slices.ContainsFunc(u.none, func(r cluster.Resources) bool { return u.room(r) > 0 })
}

// search returns the system's search for a load. It passes the present choice, which is kept
// if it is nearly as good.
func (u *Tuner) search(before, rate float64) *Search {
	if u.arrivals == nil {
		x := &Search{list: u.system.Candidates(u.function, rate, u.times)}
		if instances := u.system.rules.Instances; instances != nil {
			x.instances = instances(u.function)
		}
		return x
	}
	peak := max(rate, u.peaks.max())
	o := seen{rate: rate, room: u.room, peak: otp.Objective{Rate: peak, Arrivals: u.arrivals.fit(peak)}}
	u.function.Arrivals = u.arrivals.fit(rate)
	if u.function.Arrivals != nil {
		o.recorded = u.arrivals.recorded()
	}
	if len(u.list) > 0 && before > 0 && rate > 0 {
		o.present, o.timeout = u.list[0].Config, u.list[0].Timeout
	}
	x := u.system.optimise(u.function, o, u.times)
	u.none = x.none
	if x.now = u.at; o.present.Batch > 0 {
		x.since = u.since
	}
	return x
}

// Choice returns the config and timeout to which a driver must set all instances of the
// latest revision, for BATCH's buffer. ok is false for other systems and before the first
// choice.
func (u *Tuner) Choice() (choice capacity.Candidate, ok bool) {
	if !u.tuned() || len(u.list) == 0 {
		return choice, false
	}
	return u.list[0], true
}

// Timeout is how long a batch's first request may wait on an instance with this config.
func (u *Tuner) Timeout(config cluster.Config) time.Duration {
	for _, c := range u.list {
		if c.Config == config {
			return c.Timeout
		}
	}
	return 0
}
