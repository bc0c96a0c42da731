// Package steering feeds the latencies of requests back into capacity. The engine plans
// from predicted times. A [Loop] watches the part of a function's requests that meet its
// objective, and returns the multiple of the measured load that the engine must plan for.
// It also says how much of the misses that the percentile allows is left, so that the engine knows when it can afford
// to release something (credit.go). It decides only that. Begin with [Loop.Look].
package steering

import (
	"math"
	"time"
)

const (
	// window is the time over which Look judges outcomes.
	window = time.Second
	// reaction is the least time between two increases. No increase follows within it
	// after a change of capacity either: requests that waited before are answered late.
	reaction = 400 * time.Millisecond
	// patience is how long an ordered change of capacity may delay another increase.
	patience = 3 * time.Second
	// gentlest and steepest bound the factor of one increase.
	gentlest, steepest = 1.25, 2.0
	// shortest and longest bound the time without trouble after which the level falls.
	shortest, longest = 20 * time.Second, 10 * time.Minute
	// pause is how long no increase is tried after there was no room.
	pause = 5 * time.Second
	// probation is the time after a fall in which trouble counts as caused by it.
	probation = 30 * time.Second
	// fall is the part of the level above 1 that is left after a fall.
	fall = 0.7
	// sooner is the part of the time before a fall that a full credit saves.
	sooner = 16 * time.Second
	// measuring is how long after an increase the measured load may still rise to the one that caused it.
	measuring = 2 * time.Second
	// lasting is the number of looks that must see misses for a shortage where the plan shows none. apart is the least
	// time between two of them, and together the time within which all of them must be.
	lasting  = 3
	apart    = 80 * time.Millisecond
	together = 5 * time.Second
	// negligible is the part above 1 below which a level becomes 1.
	negligible = 0.04
	// spare is what an increase adds to what is missing, so that chance does not leave the
	// capacity just below what is needed.
	spare = 1.1
	// series bounds the factor of the increases of one trial, after which it must have helped.
	series = 4.0
	// judged is the number of requests that tell whether a trial has helped. Fewer do after
	// judging, from fewest on; after longest nobody knows.
	judged, fewest = 400, 20
	judging        = 10 * time.Second
)

// Highest is the highest level. Execution may be eight times slower than predicted, and
// the smallest possible instance may be planned for four times the load.
const Highest = 32.0

// Seen is the state of a function at a look.
type Seen struct {
	// InTime counts the requests answered within the objective, Late those answered
	// later, and Refused those turned away because they could not be met, all since the
	// function began. None of them counts requests that waited for a cold start.
	InTime, Late, Refused uint64
	// Slow are those of Late and Refused whose own execution took longer than the objective.
	// More capacity would not have helped them, so they cause no increase.
	Slow uint64
	// Percentile is the part in % of the requests that must be within the objective.
	Percentile float64
	// Capacity is in any unit that grows with capacity, such as millicores of ready
	// instances. Changing: instances are starting, or change their share.
	Capacity int
	Changing bool
	// Rate is the measured load in requests/s, 0 if it is not known.
	Rate float64
	// Planned is the predicted capacity of the instances over the load that was measured at the look before, or 0
	// if it is not known.
	Planned float64
	// Start is how long an instance takes to start, 0 if it is not known.
	Start time.Duration
	// Full: no node has room for more, or more instances would not help.
	Full bool
}

// Loop steers one function. Its zero value has seen nothing. It serves one caller at a
// time, and times never go back.
type Loop struct {
	credit credit
	// level is what [Loop.Level] returns; 0 stands for 1.
	level float64
	// marks has the counters at the looks of the last window, the oldest first.
	marks []mark
	// missing has the times of the latest looks that saw misses, the oldest first.
	missing [lasting]time.Time
	// capacity is that of the latest look, and changed when it last changed. ordered is
	// when the level was last raised.
	capacity         int
	changed, ordered time.Time
	// calm is the time of the latest trouble or fall, and fell that of the latest fall.
	// hold is how long it must be calm before the next fall.
	calm, fell time.Time
	hold       time.Duration
	troubled   bool
	// rate is the measured load at the latest look, in requests/s.
	rate float64
	// raised is the load at the latest increase, 0 if there was none or the level has been lowered since, and unraised
	// the level before it.
	raised, unraised float64
	// full is when there was last no room.
	full time.Time
	// trial is the latest series of increases while nobody knows whether it helps, nil if there
	// is none.
	trial *trial
	// futile is when a series was last undone, and missed the part of the requests that missed
	// the objective then. rest is how long no other one begins.
	futile time.Time
	missed float64
	rest   time.Duration
}

// trial is a series of increases.
type trial struct {
	// level is that before the first one, and base what was carried then: the level, or what
	// was planned. good is the part of the requests in the window before it that met the
	// objective.
	level, base, good float64
	// ends is the time from which its capacity is judged with few requests, too. from has the
	// counters since which the capacity is there.
	ends time.Time
	from *mark
}

// mark has the counters at a look.
type mark struct {
	at                    time.Time
	inTime, late, refused uint64
	slow                  uint64
}

// misses is how many requests missed the objective between two looks, less those that missed it by their own execution.
// These are counted a moment before the others, so there may seem to be more of them.
func misses(from, to *mark) float64 {
	return max(0, float64(to.late+to.refused-from.late-from.refused)-float64(to.slow-from.slow))
}

// Level is the factor by which plans multiply the measured load, from 1 if predictions hold to [Highest].
func (l *Loop) Level() float64 {
	if l.level == 0 {
		return 1
	}
	return l.level
}

// Troubled reports whether, at the latest look, more requests missed the objective than
// percentile and chance allow.
func (l *Loop) Troubled() bool { return l.troubled }

// Look updates the loop with the state at now and decides whether the level changes. It
// returns true if it does.
//
// Of n requests in the window at most n·(1 − percentile) may miss the objective. Chance
// adds up to three standard deviations and one: for 100 requests at 99 %, 1 + 3·√1 + 1 =
// 5. If more miss it, capacity must grow. The factor is n over the requests in time and a tenth more, within
// [gentlest, steepest]. That is what is missing if the instances work at their limit:
// with 180/s of 400/s in time it is 2.4, limited to 2. Look multiplies the level by it. If
// the predicted capacity is above the level, it multiplies that instead, because otherwise
// nothing would grow: with 500/s planned for 400/s, 1.25·2 = 2.5. It then waits for the new
// capacity: late answers of requests that waited before say nothing new.
//
// Three things raise no level. A load that has just risen above the planned capacity: the engine plans for it anyway.
// A load that is measured only after the increase: [Loop.follow] takes that back. Misses that came together although
// more is planned than the load needs: a stalled machine is no shortage, which misses again and again.
//
// The level falls after a time without trouble, by three tenths of its part above 1. If
// trouble follows within half a minute, the fall was wrong. Look then reverses it, and the
// next fall waits twice as long. So a load that needs the level sees ever fewer attempts. A full credit
// ([Loop.Credit]) can afford one, and shortens each wait by 16 s.
//
// Increases that do not help are undone ([Loop.judge]): some requests miss the objective whatever
// the capacity is, because a handler's database is slow now and then.
func (l *Loop) Look(now time.Time, s Seen) (changed bool) {
	if s.Capacity != l.capacity {
		l.capacity, l.changed = s.Capacity, now
	}
	bad, good, slow := l.count(now, s)
	l.credit.count(now, s)
	if s.Rate > 0 && l.rate > 0 {
		s.Planned *= l.rate / s.Rate
	}
	l.rate = s.Rate
	l.troubled = bad > Allowed(bad+good, s.Percentile)
	lacking := bad-slow > Allowed(bad+good-slow, s.Percentile)
	before := l.Level()
	l.follow(now)
	if s.Full {
		l.full = now
		l.settle(s)
	}
	l.judge(now, s)
	switch {
	case lacking:
		l.calm = now
		l.raise(now, s, bad-slow, good)
	case l.level > 1:
		l.lower(now)
	}
	return l.Level() != before
}

// Allowed is how many of n requests may miss the objective by percentile and chance.
func Allowed(n, percentile float64) float64 {
	expected := n * min(max(1-percentile/100, 1e-4), 0.5)
	return expected + 3*math.Sqrt(expected) + 1
}

// count returns how many requests missed and met the objective within the window, and how many of those that missed it
// did so by their own execution. It leaves out the time up to half a reaction after the latest change of capacity.
func (l *Loop) count(now time.Time, s Seen) (bad, good, slow float64) {
	for len(l.marks) > 1 && now.Sub(l.marks[1].at) >= window {
		l.marks = l.marks[1:]
	}
	for len(l.marks) > 0 && l.marks[0].at.Before(l.changed.Add(reaction/2)) {
		l.marks = l.marks[1:]
	}
	here := mark{now, s.InTime, s.Late, s.Refused, s.Slow}
	if n := len(l.marks); n > 0 && misses(&l.marks[n-1], &here) > 0 && now.Sub(l.missing[lasting-1]) >= apart {
		copy(l.missing[:], l.missing[1:])
		l.missing[lasting-1] = now
	}
	l.marks = append(l.marks, here)
	from := l.marks[0]
	return float64(s.Late + s.Refused - from.late - from.refused), float64(s.InTime - from.inTime), float64(s.Slow - from.slow)
}

// waits reports whether an increase must wait.
func (l *Loop) waits(now time.Time, s Seen, bad, good float64) bool {
	switch {
	case s.Changing && now.Sub(l.ordered) < patience, now.Sub(l.ordered) < reaction, now.Sub(l.changed) < reaction:
		return true
	case !l.full.IsZero() && now.Sub(l.full) < pause:
		return true
	case s.Planned > 0 && s.Planned < (1-negligible)*l.Level(): // The next plan has more in any case.
		return true
	case s.Planned > gentlest*l.Level() && !l.lasts(now):
		return true
	}
	return l.rests(now, s, bad, good)
}

// lasts reports whether requests have missed the objective again and again since the latest change of capacity. For
// example 26 requests that wait for the same stalled execution are seen to miss it by one look or two. Of 2/s that are all
// late, three looks see one each within 1.5 s.
func (l *Loop) lasts(now time.Time) bool {
	first := l.missing[0]
	return now.Sub(first) <= together && first.After(l.changed.Add(reaction/2))
}

func (l *Loop) raise(now time.Time, s Seen, bad, good float64) {
	if l.waits(now, s, bad, good) {
		return
	}
	by := steepest
	if good > 0 {
		by = max(gentlest, min(steepest, spare*(bad+good)/good))
	}
	if l.hold == 0 {
		l.hold = shortest
	}
	if !l.fell.IsZero() && now.Sub(l.fell) < probation {
		l.hold = min(longest, 2*l.hold)
		by = max(by, 1/fall)
	}
	if l.trial == nil {
		l.trial = &trial{level: l.Level(), base: max(l.Level(), s.Planned), good: good / (bad + good), ends: now.Add(judging)}
	}
	most := min(Highest, series*l.trial.base)
	if level := min(most, max(l.Level(), s.Planned)*by); level > l.Level() {
		l.raised, l.unraised = s.Rate, l.Level()
		l.level, l.trial.from = level, nil
		l.ordered, l.fell = now, time.Time{}
	}
}

// follow divides a level by what the measured load has risen since the increase to it: requests of that load caused the
// increase before it was measured, and plans would count it twice. The capacity that was ordered stays.
//
// For example a load rises from 100/s to 400/s, and three times the old one is planned. Before the rise is measured,
// requests miss the objective: the level becomes 3·1.25 = 3.75, for 375/s. With 400/s measured, it becomes 1 again.
func (l *Loop) follow(now time.Time) {
	if l.raised <= 0 || now.Sub(l.ordered) > measuring || l.rate <= gentlest*l.raised {
		return
	}
	l.level, l.raised = max(l.unraised, l.level*l.raised/l.rate), l.rate
	if l.trial != nil && l.level == l.trial.level {
		l.trial = nil
	}
}

// judge decides whether the increases of a trial have helped, once their capacity is there and enough
// requests have seen it. If a part g of the requests met the objective and the capacity grew by a
// factor k, then min(1, k·g) meet it afterwards, if capacity was what they lacked. If less than half
// of that gain is there, the level goes back to what it was, and no other trial begins for a while,
// the next time for twice as long. If all should meet it, all must, but for what percentile and chance
// allow: a trial begins when more miss it than usual, so somewhat fewer miss it later in any case.
//
// For example 12 % met the objective and the capacity is four times as large: 48 % should meet it, and
// if 30 % or more do, it has helped. Of the requests to a function of which one in 20 waits for a
// database, 92 % met it before, and 100 % should meet it; if 95 % do, it has not helped.
func (l *Loop) judge(now time.Time, s Seen) {
	t := l.trial
	if t == nil || s.Changing || now.Sub(l.ordered) < reaction || now.Sub(l.changed) < reaction {
		return
	}
	if t.from == nil {
		t.from = &mark{now, s.InTime, s.Late, s.Refused, s.Slow}
		return
	}
	bad, good := misses(t.from, &mark{now, s.InTime, s.Late, s.Refused, s.Slow}), float64(s.InTime-t.from.inTime)
	expected := min(1, t.good*l.Level()/t.base)
	least := (expected + t.good) / 2
	if expected == 1 {
		least = 1
	}
	switch n := bad + good; {
	case n >= judged, n >= fewest && !now.Before(t.ends):
		if l.trial = nil; bad > Allowed(n, s.Percentile) && good < least*n {
			l.rest = min(longest, max(shortest, 2*l.rest))
			l.level, l.raised, l.futile, l.missed, l.hold = t.level, 0, now, bad/n, shortest
		}
	case now.Sub(t.ends) > longest:
		l.trial = nil
	}
}

// rests reports whether no increase may begin because one did not help: for a while, unless far more
// requests miss the objective than at that time.
func (l *Loop) rests(now time.Time, s Seen, bad, good float64) bool {
	n := bad + good
	return !l.futile.IsZero() && now.Sub(l.futile) < l.rest && bad <= 2*Allowed(n, max(1, 100*(1-2*l.missed)))
}

// settle lowers the level of a function that cannot grow to its planned capacity, so it
// does not take what others give back later.
func (l *Loop) settle(s Seen) {
	if s.Planned > 0 && l.level > s.Planned {
		l.level, l.raised = max(1, s.Planned), 0
	}
}

func (l *Loop) lower(now time.Time) {
	wait := l.hold
	if l.fell.IsZero() || l.changed.After(l.fell) { // What the last one released is known.
		wait -= time.Duration(l.Credit() * float64(sooner))
	}
	if now.Sub(l.calm) < wait {
		return
	}
	if l.level = 1 + fall*(l.level-1); l.level-1 < negligible {
		l.level = 1
	}
	l.calm, l.fell = now, now
}

// Corrected notes that the engine's predicted times grew by the factor by. It divides the
// level by that, because the times now contain what the level compensated for.
func (l *Loop) Corrected(by float64) {
	if by > 1 && l.level > 1 {
		l.level, l.raised = max(1, l.level/by), 0
	}
}
