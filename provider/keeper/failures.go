package keeper

import (
	"fmt"
	"time"
)

const (
	// Settled is how long an instance must have been ready for its exit to be a
	// mishap and not the function's own fault.
	Settled = 10 * time.Second
	// forgetAfter is when failures are forgotten while other instances serve.
	forgetAfter = time.Minute
	// hopelessFailures is after how many instances in a row that did not live a request
	// is no longer held until the next one is tried.
	hopelessFailures = 3
)

// The pauses before something that failed is tried again.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// Backoff is the pause after the n-th failure in a row: first, 2 first, 4 first, …, at
// most longest.
func Backoff(n int, first, longest time.Duration) time.Duration {
	return min(first<<min(max(n-1, 0), 16), longest)
}

// Failures are what went wrong in a row: an instance that did not live, a change that
// was refused. The zero value is none.
type Failures struct {
	// Why is what was wrong last, fit for users; "" if nothing is.
	Why string
	// Count is how often in a row. The next try is not before NotBefore.
	Count     int
	NotBefore time.Time
}

// Failed notes one more failure.
func (f *Failures) Failed(now time.Time, why string) {
	f.Count++
	f.NotBefore = now.Add(Backoff(f.Count, firstPause, longestPause))
	f.Why = why
}

// Died delays the next start if an instance did not live that became ready at ready,
// or never did: twice as long each time. One that lived, or that answered a batch at
// least (served), is replaced at once: whatever ended it, the function works.
func (f *Failures) Died(now, ready time.Time, served bool, why string) {
	when := "before it was ready"
	if !ready.IsZero() {
		if served || now.Sub(ready) >= Settled {
			f.Count = 0
			return
		}
		when = "soon after it was ready"
	}
	f.Failed(now, fmt.Sprintf("an instance exited %s: %s", when, why))
}

// Serves forgets the failures while an instance serves that became ready at ready:
// once one that came after them has lived, or when they are long past.
func (f *Failures) Serves(now, ready time.Time) {
	if f.Count == 0 || now.Before(f.NotBefore) {
		return
	}
	lived := !ready.Before(f.NotBefore) && now.Sub(ready) >= Settled
	if lived || now.Sub(f.NotBefore) >= forgetAfter {
		f.Count, f.Why = 0, ""
	}
}

// Pausing reports whether nothing may be tried now.
func (f *Failures) Pausing(now time.Time) bool { return now.Before(f.NotBefore) }

// Hopeless reports whether it is of no use to hold requests until the next instance is
// tried.
func (f *Failures) Hopeless(now time.Time) bool {
	return f.Count >= hopelessFailures && f.Pausing(now)
}
