package policy

import (
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
)

// Activity is what is remembered of one function's requests between two looks at
// it: how many came, how often, and when the last was there. It turns counters
// into the rate and the cold-start decision that the engine is told.
type Activity struct {
	meter    scaling.Meter
	arrivals uint64
	last     time.Time
	// arrived: the latest look has seen new requests; learned: and told the
	// policy of an idle time.
	arrived, learned bool
	// windows are those of policy since last; they hold until the next request.
	windows coldstart.Windows
	policy  coldstart.Policy
}

// NewActivity remembers nothing; a function counts as active at now.
func NewActivity(now time.Time) *Activity { return &Activity{last: now} }

// Look takes in the function's state at now: how many requests have arrived
// since it exists, and whether one waits or is executed (busy). It returns the
// load in requests per second and what the cold-start policy, of a type that can
// be compared, decides about the function if it is idle: while it is not, there is
// nothing to decide. tick is the time between two looks: an idle time of no more
// than two of them is none.
func (a *Activity) Look(now time.Time, name string, arrivals uint64, busy bool, cold coldstart.Policy, tick time.Duration) (rate float64, d coldstart.Decision) {
	rate = a.meter.Read(now, arrivals)
	a.arrived, a.learned = arrivals != a.arrivals, false
	if a.arrived {
		if idle := now.Sub(a.last); idle > 2*tick {
			cold.Observe(now, name, idle)
			a.learned = true
		}
		a.arrivals, busy = arrivals, true
	}
	if busy {
		a.last, a.policy = now, nil
		return rate, coldstart.Decision{}
	}
	if a.policy != cold {
		a.windows, a.policy = cold.Windows(a.last, name), cold
	}
	return rate, coldstart.Decide(a.last, now, a.windows)
}

// Arrived reports whether the latest look has seen new requests.
func (a *Activity) Arrived() bool { return a.arrived }

// Learned reports whether the latest look has told the policy of an idle time.
func (a *Activity) Learned() bool { return a.learned }

// Last is when the function was last seen with a request.
func (a *Activity) Last() time.Time { return a.last }

// Skip has the next look count requests from arrivals on.
func (a *Activity) Skip(arrivals uint64) { a.arrivals = arrivals }
