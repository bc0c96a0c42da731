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

// Tuner keeps what a system considers for one function while its load changes. It
// chooses anew only where the load, or how bursty it is, or the room for instances, or
// what these take has changed by a good deal, and not at once again: a load that moves
// to and fro does not have instances exchanged, and asking costs nothing else. BATCH's
// choice is looked at first then, and something else only looked for where it does not
// do any more, or could cost a good deal less; loads for which it did are remembered.
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
	// room is nil where every batch has an instance; none lists what there was no room for
	// when the choice was made, fit is how many of the choice there was, and instances how
	// many it takes.
	room      Room
	none      []cluster.Resources
	fit       int
	instances int
	phases    int
	// exec is the mean time of a full batch of the choice, when it was made.
	exec time.Duration
	// confirmed are loads that the choice is right for, peaks the highest of late, and
	// busy is when there was one last. Something else has been cheaper since then, and is
	// to be looked at again when due.
	confirmed        confirmed
	peaks            peaks
	busy, since, due time.Time
	// looked is when more than the load was looked at.
	looked time.Time
	// idle is whether there was no load at the last look.
	idle bool
}

// Tuner returns a tuner for a function with the given mean times.
func (s System) Tuner(f Function, t Times) *Tuner {
	u := &Tuner{system: s, function: f, times: t}
	if batching.Of(s.batching).Tuned {
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

// Within tells, before [Tuner.Candidates], how many instances there is room for.
func (u *Tuner) Within(room Room) { u.room = room }

// Instances is the least number of instances with which the load that was chosen for
// meets the objective; 0 where the system has no such number, or there is no load.
func (u *Tuner) Instances() int {
	if u.idle {
		return 0
	}
	return u.instances
}

// Phases is how many the arrivals have that the choice was made for; 0 if they are the
// requests themselves that came, where no process has what these have.
func (u *Tuner) Phases() int { return u.phases }

const (
	// retune is how many times as high, or as low, the load must have become.
	retune = 1.25
	// retunePause is the least time between two choices: what BATCH's optimiser
	// needs at least (§VI-D).
	retunePause = 10 * time.Second
	// lookPause is the least time between two looks at more than the load.
	lookPause = time.Second
	// slower is by which part a full batch must take longer, or less long.
	slower = 0.1
)

// Candidates is [System.Candidates] for the load at now. The slice is the tuner's
// and must not be changed. revision is another one if other configs are considered
// than before: a driver of a system whose instances are all alike gives it to the
// function, so that instances of an earlier one are replaced. Where only BATCH's batch size
// or timeout change, it stays, and instances are to be told of them ([Tuner.Choice]).
func (u *Tuner) Candidates(now time.Time, rate float64) (list []capacity.Candidate, revision uint64) {
	if x := u.Begin(now, rate); x != nil {
		x.Run()
		return u.Take(x)
	}
	return u.list, u.revision
}

// Begin is Candidates for those who cannot wait: where there is something to choose anew,
// it returns the search, which is to be run, by whomever, and then given to [Tuner.Take];
// nil otherwise. For BATCH, no load is no news: no instance is exchanged for nobody. What is
// less than a request in the time that an instance is kept is none.
func (u *Tuner) Begin(now time.Time, rate float64) *Search {
	first := u.revision == 0
	if u.arrivals != nil && !(rate >= 1/trusted.Seconds()) {
		rate = 0
	} else if u.arrivals != nil {
		rate = max(rate, u.lowest())
	}
	u.idle = rate == 0
	if u.arrivals != nil && rate > 0 {
		if now.Sub(u.busy) > baselineKeepAlive {
			u.rate = 0 // There are no instances any more that could be kept.
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

// lowest is the load below which all are alike.
func (u *Tuner) lowest() float64 {
	if u.function.SLO <= 0 {
		return alone
	}
	return alone / u.function.SLO.Seconds()
}

// Take takes in what a search has found.
func (u *Tuner) Take(x *Search) (list []capacity.Candidate, revision uint64) {
	alike := func(a, b capacity.Candidate) bool {
		return a.Config == b.Config || u.arrivals != nil && a.Config.Resources == b.Config.Resources
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

// changed reports whether the load, its shape or the room is another than when the
// choice was made. Where it is a load for which the choice was confirmed, the tuner is
// set to that, and there is nothing to choose.
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

// slower reports whether the choice's batches take another time than they did.
func (u *Tuner) slower() bool {
	now := u.full()
	return now > 0 && u.exec > 0 && math.Abs(float64(now)/float64(u.exec)-1) > slower
}

// full is the mean time of a full batch of the choice, 0 if nothing is known.
func (u *Tuner) full() time.Duration {
	if len(u.list) == 0 {
		return 0
	}
	exec, _ := u.times.Exec(u.list[0].Config, u.list[0].Config.Batch)
	return exec
}

// crowded reports whether there is no room any more for the instances that were chosen,
// or for none of some config before and now for some, which may be better.
func (u *Tuner) crowded() bool {
	if u.room == nil || len(u.list) == 0 {
		return false
	}
	return u.room(u.list[0].Config.Resources) < min(u.instances, u.fit) || slices.ContainsFunc(u.none, func(r cluster.Resources) bool { return u.room(r) > 0 })
}

// search is what the system would look for. What was chosen for a load is kept if it is
// nearly as good.
func (u *Tuner) search(before, rate float64) *Search {
	if u.arrivals == nil {
		return &Search{list: u.system.Candidates(u.function, rate, u.times)}
	}
	peak := max(rate, u.peaks.most())
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

// Choice is what all instances of the latest revision are to be set to, for BATCH's
// buffer; ok is false for other systems, and before there is a choice.
func (u *Tuner) Choice() (choice capacity.Candidate, ok bool) {
	if u.arrivals == nil || len(u.list) == 0 {
		return choice, false
	}
	return u.list[0], true
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
