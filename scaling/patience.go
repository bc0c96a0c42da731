package scaling

import "time"

const (
	// exchangePause is the time between two looks for exchanges, while they find
	// nothing doubled up to the stabilisation window.
	exchangePause = time.Second
	// earlyPause is how long there must be too little before instances that are
	// starting are exchanged: until the load is known a little better.
	earlyPause = 250 * time.Millisecond
)

// patience is what the engine remembers of its looks.
type patience struct {
	next  time.Time
	pause time.Duration
	// short is since when some function has too little, begun when instances that
	// were starting were last exchanged.
	short, begun time.Time
}

// due reports whether it is time for a look.
func (w *patience) due(now time.Time) bool { return !now.Before(w.next) }

// looked says when the next look is due.
func (w *patience) looked(now time.Time, found bool, most time.Duration) {
	if found || w.pause == 0 {
		w.pause = exchangePause
	} else {
		w.pause = min(2*w.pause, most)
	}
	w.next = now.Add(w.pause)
}

// early reports whether instances that are starting may be exchanged now, once in a
// window.
func (w *patience) early(now time.Time, window time.Duration) bool {
	if now.Sub(w.short) < earlyPause || !w.begun.IsZero() && now.Sub(w.begun) < window {
		return false
	}
	w.begun = now
	return true
}
