// Package steering closes the loop from what requests experience back to capacity. The
// engine plans from predicted times; a [Loop] watches which part of a function's requests
// is answered within its objective and says by how much more than the measured load the
// engine must plan for. It decides only that; begin reading at [Loop.Look].
package steering

import (
	"math"
	"time"
)

const (
	// window is the time over which outcomes are judged.
	window = time.Second
	// reaction is the least time between two increases, and how long outcomes are left
	// alone after capacity has changed: what waited before is answered late in it.
	reaction = 400 * time.Millisecond
	// patience is how long a change of capacity that has been ordered may hold off
	// another increase.
	patience = 3 * time.Second
	// gentlest and steepest bound one increase, Highest bounds the level.
	gentlest, steepest = 1.25, 2.0
	// shortest and longest bound the time without trouble after which the level falls.
	shortest, longest = 20 * time.Second, 10 * time.Minute
	// pause is how long no increase is tried after there was no room.
	pause = 5 * time.Second
	// probation is the time after a fall in which trouble is blamed on it.
	probation = 30 * time.Second
	// fall is what is left of the level's part above 1 after a fall.
	fall = 0.7
	// none is the part above 1 below which a level is 1.
	none = 0.04
)

// Highest is the highest level. Reality may be eight times slower than predicted, and the
// smallest instance that there is may be planned to serve four times the load.
const Highest = 32.0

// Seen is what is known of a function at a look.
type Seen struct {
	// InTime, Late and Refused count the requests answered within the objective, those
	// answered later and those turned away because they could not be met, all since the
	// function began. Requests that waited for a cold start are in none of them.
	InTime, Late, Refused uint64
	// Percentile is how many % of the requests are to be within the objective.
	Percentile float64
	// Capacity is what serves, in any unit that grows when capacity does (millicores of
	// ready instances). Changing: instances are starting, or change their share.
	Capacity int
	Changing bool
	// Planned is what the instances can take by the prediction, over the measured load; 0
	// if that is not known.
	Planned float64
	// Full: no node has room for more, or more of what there is would not help.
	Full bool
}

// Loop steers one function. Its zero value has seen nothing. It serves one caller at a
// time, and times never go back.
type Loop struct {
	// level is what [Loop.Level] returns; 0 stands for 1.
	level float64
	// marks are the counters at the looks of the last window, the oldest first.
	marks []mark
	// capacity is that of the latest look, changed when it became that; ordered is when
	// the level was last raised.
	capacity         int
	changed, ordered time.Time
	// calm is when the latest trouble was, or the latest fall; fell when the level fell
	// last. hold is how long it must be calm before the next fall.
	calm, fell time.Time
	hold       time.Duration
	troubled   bool
	// full is when there was no room last.
	full time.Time
}

// mark is the counters at a look.
type mark struct {
	at                    time.Time
	inTime, late, refused uint64
}

// Level is by how much the measured load is to be multiplied when instances are planned:
// 1 if predictions hold, at most [Highest].
func (l *Loop) Level() float64 { return max(1, l.level) }

// Troubled reports whether at the latest look more requests missed the objective than its
// percentile allows.
func (l *Loop) Troubled() bool { return l.troubled }

// Look takes in what was seen up to now and decides whether the level changes. It returns
// true if it does.
//
// Of n requests in the window at most n·(1 − percentile) may miss the objective. Chance
// adds up to three standard deviations and one: of 100 requests at 99 %, 1 + 3·√1 + 1 = 5.
// If more do, capacity must grow. The level is multiplied by n over those in time, which
// is what is missing if the instances work at their limit (of 400/s 180/s in time: 2.2),
// within [gentlest, steepest]. Where by the prediction the instances could take more than
// the level asks for, that is multiplied, or nothing would grow: with 500/s planned for
// 400/s, 1.25·2 = 2.5. It then waits for the capacity that this brings, as late answers of
// requests that waited before say nothing new.
//
// The level falls after a time without trouble, by three tenths of its part above 1. If
// trouble follows within half a minute, the fall was wrong: it is taken back, and the next
// one waits twice as long, so that a load that needs the level sees ever fewer attempts.
func (l *Loop) Look(now time.Time, s Seen) (changed bool) {
	if s.Capacity != l.capacity {
		l.capacity, l.changed = s.Capacity, now
	}
	bad, good := l.count(now, s)
	l.troubled = bad > allowed(bad+good, s.Percentile)
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

// allowed is how many of n requests may miss an objective of percentile without that
// meaning anything.
func allowed(n, percentile float64) float64 {
	expected := n * min(max(1-percentile/100, 1e-4), 0.5)
	return expected + 3*math.Sqrt(expected) + 1
}

// count returns how many requests missed and met the objective since the latest change of
// capacity, but for the reaction time after it, within the window.
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

// settle has a function that cannot have more want what it has: it must not take what
// others give back later.
func (l *Loop) settle(s Seen) {
	if s.Planned > 0 && l.level > s.Planned {
		l.level = max(1, s.Planned)
	}
}

func (l *Loop) lower(now time.Time) {
	if now.Sub(l.calm) < l.hold {
		return
	}
	if l.level = 1 + fall*(l.level-1); l.level-1 < none {
		l.level = 1
	}
	l.calm, l.fell = now, now
}

// Corrected tells the loop that the times which the engine plans with have become so many
// times what they were: what the level made up for is in them now, and counts only once.
func (l *Loop) Corrected(by float64) {
	if by > 1 && l.level > 1 {
		l.level = max(1, l.level/by)
	}
}
