package keeper

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	// Settled is how long an instance must have been ready before its exit no longer
	// counts as a failure of the function.
	Settled = 10 * time.Second
	// forgetAfter is how long after the last pause failures are forgotten while another
	// instance serves.
	forgetAfter = time.Minute
	// hopelessFailures is the number of failures in a row after which requests no longer
	// wait for the next instance.
	hopelessFailures = 3
)

// Pauses after failures double from firstPause to longestPause.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// Failures counts failures in a row: instances that exited early, or refused changes. The
// zero value means no failure.
type Failures struct {
	// Why is the last failure, in words for users; "" if there is none.
	Why string
	// Count is the number of failures in a row. The next attempt is not made before
	// NotBefore.
	Count     int
	NotBefore time.Time
	// full is how many of the Count failures were for want of space. They say nothing
	// about the function: it may work as soon as there is space again.
	full int
}

// Failed records one more failure.
func (f *Failures) Failed(now time.Time, why string) {
	f.Count++
	f.NotBefore = now.Add(backoff.Pause(f.Count, firstPause, longestPause))
	f.Why = why
}

// Died records the exit of an instance. ready is when it became ready, zero if it never did.
// An exit before that, or soon after it, delays the next start, twice as long each time. An
// instance that was ready for Settled, or has answered a request (served), is replaced at
// once: the function works.
func (f *Failures) Died(now, ready time.Time, served bool, why string) {
	when := "before it was ready"
	if !ready.IsZero() {
		if served || now.Sub(ready) >= Settled {
			f.Count, f.full, f.Why = 0, 0, ""
			return
		}
		when = "soon after it was ready"
	}
	if lacksSpace(why) {
		f.full++
		f.Failed(now, fmt.Sprintf("no space left on a disk that instances need; starts are tried again: %s", why))
		return
	}
	f.Failed(now, fmt.Sprintf("an instance exited %s: %s", when, why))
}

// lacksSpace reports whether a failure is for want of space on a disk or in a quota. An
// instance's process and the backend end such an error with the system's text for it.
func lacksSpace(why string) bool {
	why = strings.ToLower(why)
	return strings.Contains(why, syscall.ENOSPC.Error()) || strings.Contains(why, syscall.EDQUOT.Error())
}

// Serves forgets the failures if an instance that became ready at ready still serves. It does
// so if the instance came after the failures and has been ready for Settled, or if the last
// pause ended more than forgetAfter ago.
func (f *Failures) Serves(now, ready time.Time) {
	if f.Count == 0 || now.Before(f.NotBefore) {
		return
	}
	lived := !ready.Before(f.NotBefore) && now.Sub(ready) >= Settled
	if lived || now.Sub(f.NotBefore) >= forgetAfter {
		f.Count, f.full, f.Why = 0, 0, ""
	}
}

// Pausing reports whether the next attempt must still wait.
func (f *Failures) Pausing(now time.Time) bool { return now.Before(f.NotBefore) }

// Hopeless reports whether requests should be refused at once instead of waiting for the next
// attempt. Failures for want of space do not count.
func (f *Failures) Hopeless(now time.Time) bool {
	return f.Count-f.full >= hopelessFailures && f.Pausing(now)
}
