package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	// aloneFor is how long a target that serves alone must have answered nothing but failures, at
	// least fewest of them, until it is replaced.
	aloneFor = 10 * time.Second
	// firstRest is the shortest time between two such replacements. It doubles with each, up to
	// longestRest, and is forgotten when none came for longestRest.
	firstRest   = time.Minute
	longestRest = time.Hour
)

// The reasons why a target that answers is Gone.
var (
	// ErrFailing: siblings answer well what it fails.
	ErrFailing = errors.New("it answered with errors that the function's other instances did not have, and went on to do so")
	// ErrAlone: there is no sibling to compare it with.
	ErrAlone = fmt.Errorf("it was the function's only instance, and for %v all its answers were errors (5xx); another one shows whether the cause is the function itself", aloneFor)
)

// alone follows a target that fails and has no sibling. It is replaced once. If the replacement fails
// alike, the errors are the function's own, and it stays.
type alone struct {
	// target has failed failures times in a row since then, nil if none does.
	target   *Target
	since    time.Time
	failures int
	// tried: one was replaced, and no target has answered well since.
	tried bool
	// notBefore is the earliest time of the next replacement, after count of them.
	notBefore time.Time
	count     int
}

// failed notes a failure of a target without siblings, and reports whether it is to be replaced.
func (a *alone) failed(now time.Time, t *Target) bool {
	if a.target != t {
		a.target, a.since, a.failures = t, now, 0
	}
	a.failures++
	if !a.lasting(now) || a.tried || now.Before(a.notBefore) {
		return false
	}
	if now.Sub(a.notBefore) >= longestRest {
		a.count = 0
	}
	a.count++
	a.notBefore = now.Add(backoff.Pause(a.count, firstRest, longestRest))
	a.target, a.tried = nil, true
	return true
}

// lasting reports whether the target has failed for long enough.
func (a *alone) lasting(now time.Time) bool {
	return a.target != nil && a.failures >= fewest && now.Sub(a.since) >= aloneFor
}

// well notes that a target has answered well.
func (a *alone) well() { a.target, a.tried = nil, false }

// forget notes that a target is gone. The next one is no replacement of it.
func (a *alone) forget(t *Target) {
	if a.target != nil && a.target == t {
		a.well()
	}
}

// Problem says that the only target answers with nothing but failures and what follows from that, ""
// if it does not, in words for users.
func (g *Group) Problem(now time.Time) string {
	a := &g.alone
	if !a.lasting(now) {
		return ""
	}
	why := fmt.Sprintf("the only instance has answered nothing but errors (5xx) since %s", a.since.UTC().Format(time.RFC3339))
	if a.tried {
		return why + ", as the one before it did; the function itself is the cause, so it is not replaced again: see its log"
	}
	return why + "; it is replaced if that goes on"
}
