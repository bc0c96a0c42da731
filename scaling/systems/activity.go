package systems

import (
	"cmp"
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/scaling"
)

// Activity remembers one function's requests between two looks: their number, their rate,
// and the time of the last one. It turns counters into the rate and the cold-start
// decision for the engine.
type Activity struct {
	meter    rateMeter
	arrivals uint64
	// patient is what Apart was called with.
	patient uint64
	last    time.Time
	// arrived: the latest look saw new requests. learned: it also reported an idle time
	// to the policy.
	arrived, learned bool
	// windows are those of policy for an idle time that began at last. They hold until
	// the next request.
	windows coldstart.Windows
	policy  coldstart.Policy
}

// rateMeter turns a counter into a rate per second.
type rateMeter interface {
	Read(now time.Time, total uint64) float64
}

// NewActivity returns an Activity without requests; the function counts as active at now.
// It measures the load as production does.
func NewActivity(now time.Time) *Activity { return &Activity{last: now, meter: &scaling.Meter{}} }

// Activity is NewActivity for the system. If the system counts the load once in a
// period, the rate is that of the last period.
func (s System) Activity(now time.Time) *Activity {
	if period := cmp.Or(s.rules.Meter, s.rules.Period); period > 0 {
		return &Activity{last: now, meter: &monitor{period: period}}
	}
	return NewActivity(now)
}

// monitor counts the requests of each period.
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

// Look updates the activity with the function's state at now: the number of requests
// since the function began, and whether one waits or executes (busy). It returns the load
// in requests per second, and the cold-start policy's decision if the function is idle;
// otherwise the decision is zero. The policy must have a comparable type. tick is the time
// between two looks: idle times of up to two ticks do not count.
func (a *Activity) Look(now time.Time, name string, arrivals uint64, busy bool, cold coldstart.Policy, tick time.Duration) (rate float64, d coldstart.Decision) {
	rate = a.meter.Read(now, arrivals-min(arrivals, a.patient))
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

// Still says that no request came between the latest look and a later time at which there was none.
func (a *Activity) Still(at time.Time) { a.meter.Read(at, a.arrivals-min(a.arrivals, a.patient)) }

// Apart leaves requests that may wait out of the rate of the next look: so many of the arrivals since
// the function began, never fewer than at the call before.
func (a *Activity) Apart(patient uint64) { a.patient = patient }

// Arrived reports whether the latest look saw new requests.
func (a *Activity) Arrived() bool { return a.arrived }

// Learned reports whether the latest look reported an idle time to the policy.
func (a *Activity) Learned() bool { return a.learned }

// Last is when the function was last seen with a request.
func (a *Activity) Last() time.Time { return a.last }

// Skip makes the next look count only requests after arrivals.
func (a *Activity) Skip(arrivals uint64) { a.arrivals = arrivals }
