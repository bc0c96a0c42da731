// Package steering feeds the latencies of requests back into capacity. The engine plans
// from predicted times. A [Loop] watches the part of a function's requests that meet its
// objective, and returns the multiple of the measured load that the engine must plan for.
// It decides only that. Begin with [Loop.Look].
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
	// negligible is the part above 1 below which a level becomes 1.
	negligible = 0.04
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
	// Percentile is the part in % of the requests that must be within the objective.
	Percentile float64
	// Capacity is in any unit that grows with capacity, such as millicores of ready
	// instances. Changing: instances are starting, or change their share.
	Capacity int
	Changing bool
	// Planned is the predicted capacity of the instances over the measured load, or 0 if
	// it is not known.
	Planned float64
	// Full: no node has room for more, or more instances would not help.
	Full bool
}

// Loop steers one function. Its zero value has seen nothing. It serves one caller at a
// time, and times never go back.
type Loop struct {
	// level is what [Loop.Level] returns; 0 stands for 1.
	level float64
	// marks has the counters at the looks of the last window, the oldest first.
	marks []mark
	// capacity is that of the latest look, and changed when it last changed. ordered is
	// when the level was last raised.
	capacity         int
	changed, ordered time.Time
	// calm is the time of the latest trouble or fall, and fell that of the latest fall.
	// hold is how long it must be calm before the next fall.
	calm, fell time.Time
	hold       time.Duration
	troubled   bool
	// full is when there was last no room.
	full time.Time
}

// mark has the counters at a look.
type mark struct {
	at                    time.Time
	inTime, late, refused uint64
}

// Level is the factor by which plans multiply the measured load: 1 if predictions hold, at
// most [Highest].
func (l *Loop) Level() float64 { return max(1, l.level) }

// Troubled reports whether, at the latest look, more requests missed the objective than
// percentile and chance allow.
func (l *Loop) Troubled() bool { return l.troubled }

// Look updates the loop with the state at now and decides whether the level changes. It
// returns true if it does.
//
// Of n requests in the window at most n·(1 − percentile) may miss the objective. Chance
// adds up to three standard deviations and one: for 100 requests at 99 %, 1 + 3·√1 + 1 =
// 5. If more miss it, capacity must grow. The factor is n over the requests in time, within
// [gentlest, steepest]. That is what is missing if the instances work at their limit:
// with 180/s of 400/s in time it is 2.2, limited to 2. Look multiplies the level by it. If
// the predicted capacity is above the level, it multiplies that instead, because otherwise
// nothing would grow: with 500/s planned for 400/s, 1.25·2 = 2.5. It then waits for the new
// capacity: late answers of requests that waited before say nothing new.
//
// The level falls after a time without trouble, by three tenths of its part above 1. If
// trouble follows within half a minute, the fall was wrong. Look then reverses it, and the
// next fall waits twice as long. So a load that needs the level sees ever fewer attempts.
func (l *Loop) Look(now time.Time, s Seen) (changed bool) {
	if s.Capacity != l.capacity {
		l.capacity, l.changed = s.Capacity, now
	}
	bad, good := l.count(now, s)
	l.troubled = bad > Allowed(bad+good, s.Percentile)
	before := l.Level()
	if s.Full {
		l.full = now
		l.settle(s)
	}
	switch {
	case l.troubled:
		l.calm = now
		l.raise(now, s, bad, good)
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

// count returns how many requests missed and met the objective within the window. It
// leaves out the time up to half a reaction after the latest change of capacity.
func (l *Loop) count(now time.Time, s Seen) (bad, good float64) {
	for len(l.marks) > 1 && now.Sub(l.marks[1].at) >= window {
		l.marks = l.marks[1:]
	}
	for len(l.marks) > 0 && l.marks[0].at.Before(l.changed.Add(reaction/2)) {
		l.marks = l.marks[1:]
	}
	l.marks = append(l.marks, mark{now, s.InTime, s.Late, s.Refused})
	from := l.marks[0]
	return float64(s.Late + s.Refused - from.late - from.refused), float64(s.InTime - from.inTime)
}

func (l *Loop) raise(now time.Time, s Seen, bad, good float64) {
	waits := s.Changing && now.Sub(l.ordered) < patience
	if waits || !l.full.IsZero() && now.Sub(l.full) < pause || now.Sub(l.ordered) < reaction || now.Sub(l.changed) < reaction {
		return
	}
	by := steepest
	if good > 0 {
		by = max(gentlest, min(steepest, (bad+good)/good))
	}
	if l.hold == 0 {
		l.hold = shortest
	}
	if !l.fell.IsZero() && now.Sub(l.fell) < probation {
		l.hold = min(longest, 2*l.hold)
		by = max(by, 1/fall)
	}
	l.level = min(Highest, max(l.Level(), s.Planned)*by)
	l.ordered, l.fell = now, time.Time{}
}

// settle lowers the level of a function that cannot grow to its planned capacity, so it
// does not take what others give back later.
func (l *Loop) settle(s Seen) {
	if s.Planned > 0 && l.level > s.Planned {
		l.level = max(1, s.Planned)
	}
}

func (l *Loop) lower(now time.Time) {
	if now.Sub(l.calm) < l.hold {
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
		l.level = max(1, l.level/by)
	}
}
