package batch

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Tuner implements [systems.Tuner]. It chooses again only if the load, its burstiness, the room for
// instances or their execution times changed clearly, and not again for a pause. So a load that moves
// to and fro does not cause exchanges, and most calls are cheap.
//
// It checks the present choice first. It searches for another only if the present one no longer
// meets the objective or could cost clearly less. It remembers the loads for which the choice was
// confirmed.
type Tuner struct {
	system   systems.System
	function systems.Function
	times    systems.Times
	rate     float64
	at       time.Time
	list     []capacity.Candidate
	revision uint64
	arrivals *arrivals
	// process is fitted to the arrivals at the load of the choice; nil means Poisson.
	process *arrival.MAP
	// room is nil if every batch has an instance. none, fit and instances are from the
	// time of the choice: the resources without room, the number of instances of the
	// choice for which there was room, and the number that it needs.
	room      systems.Room
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

// NewTuner returns a tuner for a function of a system with the given mean times.
func NewTuner(s systems.System, f systems.Function, t systems.Times) *Tuner {
	return &Tuner{system: s, function: f, times: t, arrivals: newArrivals()}
}

// Arrived implements [systems.Tuner].
func (u *Tuner) Arrived(at time.Time) { u.arrivals.add(at) }

// Within implements [systems.Tuner].
func (u *Tuner) Within(room systems.Room) { u.room = room }

// Instances implements [systems.Tuner].
func (u *Tuner) Instances() int {
	if u.idle {
		return 0
	}
	return u.instances
}

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

// Begin implements [systems.Tuner]. No load causes no search. A load below one request in the
// keep-alive time counts as none.
func (u *Tuner) Begin(now time.Time, rate float64) systems.Search {
	first := u.revision == 0
	if rate >= 1/peakMemory.Seconds() {
		rate = max(rate, u.lowest())
	} else {
		rate = 0
	}
	u.idle = rate == 0
	if rate > 0 {
		if now.Sub(u.busy) > keepAlive {
			u.rate = 0 // No instances are left that could be kept.
		}
		u.busy = now
		u.peaks.add(now, rate)
	} else if !first {
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

// take makes the result of a search the tuner's choice. The revision changes with the resources
// only: instances can stay when batch size or timeout changes.
func (u *Tuner) take(x *tunerSearch) (list []capacity.Candidate, revision uint64) {
	alike := func(a, b capacity.Candidate) bool { return a.Config.Resources == b.Config.Resources }
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
	if !moved && now.Sub(u.looked) < lookPause {
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

// search returns the search for a load. It passes the present choice, which is kept if it is
// nearly as good.
func (u *Tuner) search(before, rate float64) *tunerSearch {
	peak := max(rate, u.peaks.max())
	o := seen{rate: rate, room: u.room, peak: Objective{Rate: peak, Arrivals: u.arrivals.fit(peak)}}
	u.process = u.arrivals.fit(rate)
	if o.arrivals = u.process; o.arrivals != nil {
		o.recorded = u.arrivals.recorded()
	}
	if len(u.list) > 0 && before > 0 && rate > 0 {
		o.present, o.timeout = u.list[0].Config, u.list[0].Timeout
	}
	x := optimise(u.system, u.function, o, u.times)
	x.tuner = u
	u.none = x.none
	if x.now = u.at; o.present.Batch > 0 {
		x.since = u.since
	}
	return x
}
