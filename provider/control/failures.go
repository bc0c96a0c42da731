package control

import (
	"fmt"
	"time"
)

const (
	// settledAfter is how long an instance must have been ready for its exit to be a
	// mishap and not the function's own fault.
	settledAfter = 10 * time.Second
	// longPast is when failures are forgotten while other instances serve.
	longPast = time.Minute
	// manyFailures is after how many instances in a row that did not live a request is
	// no longer held until the next one is tried.
	manyFailures = 3
)

// failures are those of one function. The zero value is none.
type failures struct {
	// Why is what the last instance died of, fit for users; "" if nothing did.
	Why string
	// Count is that of instances in a row that did not live; NotBefore is when the
	// next may be started.
	Count     int
	NotBefore time.Time
}

// Died delays the next start if an instance did not live that became ready at ready,
// or never did: twice as long each time. One that lived, or that answered a batch at
// least (served), is replaced at once: whatever ended it, the function works.
func (f *failures) Died(now, ready time.Time, served bool, why string) {
	when := "before it was ready"
	if !ready.IsZero() {
		if served || now.Sub(ready) >= settledAfter {
			f.Count = 0
			return
		}
		when = "soon after it was ready"
	}
	f.Count++
	f.NotBefore = now.Add(backoff(f.Count))
	f.Why = fmt.Sprintf("an instance exited %s: %s", when, why)
}

// Serves forgets the failures while an instance serves that became ready at ready:
// once one that came after them has lived, or when they are long past.
func (f *failures) Serves(now, ready time.Time) {
	if f.Count == 0 || now.Before(f.NotBefore) {
		return
	}
	lived := !ready.Before(f.NotBefore) && now.Sub(ready) >= settledAfter
	if lived || now.Sub(f.NotBefore) >= longPast {
		f.Count, f.Why = 0, ""
	}
}

// Pausing reports whether no instance may be started now.
func (f *failures) Pausing(now time.Time) bool { return now.Before(f.NotBefore) }

// Hopeless reports whether it is of no use to hold requests until the next instance is
// tried.
func (f *failures) Hopeless(now time.Time) bool { return f.Count >= manyFailures && f.Pausing(now) }

// backoff is the pause after the n-th failed start in a row: 0.2 s, 0.4 s, …, at most
// 30 s.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n, 10), 30*time.Second)
}
