package decisions

import "time"

const (
	// lookPause is the least time between two looks at a function's problem. A problem that the next look does not
	// see any more is none: instances that start are one for a moment. It is solved once it is gone for solvedAfter.
	lookPause   = time.Second
	solvedAfter = 3 * time.Second
)

// Problems follows the problem of one function, and adds to a log when one comes and goes. Its zero value has none.
type Problems struct {
	// seen is the problem at the latest look, told the one in the log. since is when that was first seen, gone when
	// it was first not seen any more, zero while it is.
	seen, told  string
	looked      time.Time
	since, gone time.Time
	seenSince   time.Time
}

// Look takes in the problem of a function at a time, "" for none. It must be fast: it is called at every look of
// controllers.
func (p *Problems) Look(l *Log, now time.Time, function string, problem func() string) {
	if l == nil || now.Sub(p.looked) < lookPause {
		return
	}
	p.looked = now
	before := p.seen
	if p.seen = problem(); p.seen != "" && !Same(before, p.seen) {
		p.seenSince = now
	}
	switch {
	case p.told != "" && (p.seen == "" || !Same(p.told, p.seen)):
		if p.gone.IsZero() {
			p.gone = now
		}
		if other := p.seen != "" && Same(before, p.seen); other || now.Sub(p.gone) >= solvedAfter {
			l.Add(now, function, Solved, Fields{Detail: p.told, Took: p.gone.Sub(p.since).Seconds()})
			p.told, p.gone = "", time.Time{}
		}
	default:
		p.gone = time.Time{}
	}
	if p.told == "" && p.seen != "" && Same(before, p.seen) {
		p.told, p.since = p.seen, p.seenSince
		l.Add(now, function, Problem, Fields{Detail: p.seen})
	}
}
