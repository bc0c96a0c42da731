// Package spare decides when a best-effort request may run: on what the other requests of its
// function and of its nodes leave (INFaaS's offline queries). It takes the state and the time
// and returns a [Verdict]; it has no clock and executes nothing. Begin reading at [Decide].
package spare

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// Header is the header with a request's class.
	Header = "X-Infer-Class"
	// BestEffort is the only class.
	BestEffort = "best-effort"
	// Age is how long a best-effort request may wait before it is given up.
	Age = 24 * time.Hour
	// MaxCPU is the largest share of its CPU that a node of the function may use. INFaaS'
	// release runs offline queries below this share.
	MaxCPU = 0.4
	// Pause is the time between two looks at the state.
	Pause = time.Second
)

// ErrOccupied says that no instance was free for a best-effort request.
var ErrOccupied = errors.New("no instance is free for a best-effort request now")

// ParseClass reads the values of Header, none if the request does not have it.
func ParseClass(values []string) (bestEffort bool, err error) {
	for _, v := range values {
		if strings.TrimSpace(v) != BestEffort {
			return false, fmt.Errorf("the header %s is %q: it must be %q; leave it out for an ordinary request", Header, clip(v), BestEffort)
		}
	}
	return len(values) > 0, nil
}

// clip cuts a value to 80 bytes, so a hostile one cannot fill the answer.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// State is what a function and its nodes leave.
type State struct {
	// Ready counts the function's instances that take batches. Overloaded and Interfered
	// count those in these states.
	Ready, Overloaded, Interfered int
	// CPU is the share of its CPU that a node with such instances uses, from 0 to 1: the
	// largest of all these nodes.
	CPU float64
	// Waiting is the number of other requests that wait for the function.
	Waiting int
}

// Kind is the kind of a Verdict.
type Kind int

// The kinds of Verdict.
const (
	// Wait: look again at Verdict.At.
	Wait Kind = iota
	// Run: the request may run.
	Run
	// Expired: the request is given up.
	Expired
)

// Verdict says what to do with a best-effort request.
type Verdict struct {
	Kind Kind
	// At is the time of the next look; for Wait only.
	At time.Time
	// Why is the reason to wait or to give up.
	Why string
}

// Decide decides about a request that was stored at a time and expires at an age.
//
// For example, a request of an age of 24 h that was stored at 08:00 runs at 20:00 if a node
// uses 40 % of its CPU, waits until 20:00:01 if it uses 41 %, and expires at 08:00 of the next
// day.
func Decide(now, stored time.Time, age time.Duration, s State) Verdict {
	why := s.against()
	end := stored.Add(age)
	switch {
	case !now.Before(end):
		if why == "" {
			why = "its function was busy until now"
		}
		return Verdict{Kind: Expired, Why: fmt.Sprintf("it waited for %v as a best-effort request: %s", age, why)}
	case why == "":
		return Verdict{Kind: Run}
	}
	at := now.Add(Pause)
	if end.Before(at) {
		at = end
	}
	return Verdict{Kind: Wait, At: at, Why: why}
}

// against is the reason against running a best-effort request, "" if there is none.
func (s State) against() string {
	switch {
	case s.Ready == 0:
		return "its function has no ready instance, and a best-effort request starts none"
	case s.Overloaded > 0:
		return "an instance of its function is overloaded"
	case s.Interfered > 0:
		return "something interferes with an instance of its function"
	case s.Waiting > 0:
		return "other requests wait for its function"
	case !(s.CPU <= MaxCPU): // Also if it is not a number.
		return fmt.Sprintf("a node of its function uses more than %.0f %% of its CPU", 100*MaxCPU)
	}
	return ""
}
