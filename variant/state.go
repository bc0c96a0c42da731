package variant

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state of a variant on a node (Fig. 4).
type State uint8

// The states.
const (
	// Inactive: not loaded.
	Inactive State = iota
	// Active: loaded, with less load than it can serve.
	Active
	// Overloaded: the load is its peak or more.
	Overloaded
	// Interfered: not overloaded, and slower than its profile.
	Interfered
)

var states = []string{"inactive", "active", "overloaded", "interfered"}

// String returns the state's name in a table of variants.
func (s State) String() string { return states[s] }

// ParseState reads a state's name.
func ParseState(name string) (State, error) {
	i := slices.Index(states, name)
	if i < 0 {
		return 0, &FieldError{"state", fmt.Sprintf("is %q: it is one of %s", name, strings.Join(states, ", "))}
	}
	return State(i), nil
}

// Thresholds of interference: a variant is Interfered after steady observations above slow
// times its profile, and no longer after as many below calm times. Between them it stays what
// it is, so that it does not change with each execution.
const (
	slow, calm = 1.25, 1.1
	steady     = 3
)

// Watch follows a variant on a node through the states. Its zero value is Inactive.
type Watch struct {
	state State
	// against counts the latest observations that speak against the present state.
	against int
}

// Seen is what was observed of a variant on a node.
type Seen struct {
	// Loaded: it has an instance there.
	Loaded bool
	// Load is the rate that it gets and Peak the highest that it serves in time (r_up), in
	// requests/s.
	Load, Peak float64
	// Exec is the time that executions took, without waiting, and Profile the time that was
	// expected. With an Exec of 0 there was none.
	Exec, Profile time.Duration
}

// State is the present state.
func (w Watch) State() State { return w.state }

// After returns the watch after an observation. Queueing makes requests slow and not
// executions, so it is never taken for interference.
func (w Watch) After(seen Seen) Watch {
	switch {
	case !seen.Loaded:
		return Watch{}
	case seen.Load >= seen.Peak:
		return Watch{state: Overloaded}
	case seen.Exec == 0 && w.state == Interfered:
		return w
	case seen.Exec == 0:
		return Watch{state: Active, against: w.against}
	}
	if w.state != Interfered {
		if float64(seen.Exec) <= slow*float64(seen.Profile) {
			return Watch{state: Active}
		}
		if w.against+1 < steady {
			return Watch{state: Active, against: w.against + 1}
		}
		return Watch{state: Interfered}
	}
	if float64(seen.Exec) >= calm*float64(seen.Profile) {
		return Watch{state: Interfered}
	}
	if w.against+1 < steady {
		return Watch{state: Interfered, against: w.against + 1}
	}
	return Watch{state: Active}
}
