package joint

import "time"

const (
	// pause is the time between two looks for exchanges, while they find nothing
	// doubled up to the stabilisation window.
	pause = time.Second
	// earlyPause is how long there must be too little before instances that are
	// starting are exchanged: until the load is known a little better.
	earlyPause = 250 * time.Millisecond
)

// Patience says when it is time to try. Its zero value has not tried yet.
type Patience struct {
	next  time.Time
	pause time.Duration
	// short is since when some function has too little, begun when instances that
	// were starting were last exchanged.
	short, begun time.Time
}

// Enough: no function has too little now.
func (w *Patience) Enough() { w.short = time.Time{} }

// Short: some function has too little.
func (w *Patience) Short(now time.Time) {
	if w.short.IsZero() {
		w.short = now
	}
}

// Due reports whether it is time for a try. While instances start, only these are
// exchanged, once in a window, and not again and again: that costs no more than the
// time since they were started.
func (w *Patience) Due(now time.Time, early bool, window time.Duration) bool {
	if !early {
		return !now.Before(w.next)
	}
	if now.Sub(w.short) < earlyPause || !w.begun.IsZero() && now.Sub(w.begun) < window {
		return false
	}
	w.begun = now
	return true
}

// Tried says what a try has found, which tells when the next one is due.
func (w *Patience) Tried(now time.Time, early, found bool, most time.Duration) {
	switch {
	case early:
		return
	case found || w.pause == 0:
		w.pause = pause
	default:
		w.pause = min(2*w.pause, most)
	}
	w.next = now.Add(w.pause)
}
