package joint

import "time"

const (
	// pause is the time between two tries. While they find nothing, it doubles up to the
	// stabilisation window.
	pause = time.Second
	// earlyPause is how long a function must have too little before instances that are
	// starting are exchanged. Meanwhile the load becomes known a little better.
	earlyPause = 250 * time.Millisecond
)

// Patience says when to try an exchange. Its zero value has not tried yet.
type Patience struct {
	next  time.Time
	pause time.Duration
	// short is the time since which some function has too little. begun is when
	// instances that were starting were last exchanged.
	short, begun time.Time
}

// Enough notes that no function has too little.
func (w *Patience) Enough() { w.short = time.Time{} }

// Short notes that some function has too little at now.
func (w *Patience) Short(now time.Time) {
	if w.short.IsZero() {
		w.short = now
	}
}

// Due reports whether it is time for a try. While instances start (early), only these are
// exchanged, at most once in a window. That costs no more than the time since they were
// started.
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

// Tried notes whether a try found something, and sets when the next one is due. maxPause
// bounds the pause.
func (w *Patience) Tried(now time.Time, early, found bool, maxPause time.Duration) {
	switch {
	case early:
		return
	case found || w.pause == 0:
		w.pause = pause
	default:
		w.pause = min(2*w.pause, maxPause)
	}
	w.next = now.Add(w.pause)
}
