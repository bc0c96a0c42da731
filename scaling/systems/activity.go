package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
)

// Activity is what is remembered of one function's requests between two looks at
// it: how many came, how often, and when the last was there. It turns counters
// into the rate and the cold-start decision that the engine is told.
type Activity struct {
	meter    rateMeter
	arrivals uint64
	last     time.Time
	// arrived: the latest look has seen new requests; learned: and told the
	// policy of an idle time.
	arrived, learned bool
	// windows are those of policy since last; they hold until the next request.
	windows coldstart.Windows
	policy  coldstart.Policy
}

// rateMeter turns a counter into a rate per second.
type rateMeter interface {
	Read(now time.Time, total uint64) float64
}

// NewActivity remembers nothing; a function counts as active at now. It follows
// the load as production does.
func NewActivity(now time.Time) *Activity { return &Activity{last: now, meter: &scaling.Meter{}} }

// Activity is NewActivity for the system: one that looks at the load once in a
// period is told of what came in the last one.
func (s System) Activity(now time.Time) *Activity {
	if s.period > 0 {
		return &Activity{last: now, meter: &monitor{period: s.period}}
	}
	return NewActivity(now)
}

// monitor counts what comes in a period.
type monitor struct {
	period time.Duration
	total  uint64
	since  time.Time
	rate   float64
}

// Read returns the rate of the last period that is over.
func (m *monitor) Read(now time.Time, total uint64) float64 {
	passed := now.Sub(m.since)
	if m.since.IsZero() {
		m.since, m.total = now, total
	} else if passed >= m.period {
		m.rate = float64(total-m.total) / passed.Seconds()
		m.since, m.total = now, total
	}
	return m.rate
}

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
