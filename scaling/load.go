package scaling

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// load returns the steady load and the demand in requests per second. The demand is at
// least the steady load times the function's level.
//
// Requests that may wait do not count in what follows: [Backlog] has put them into the steady load.
// At a load of R, at most R·t_slo requests can wait and still be in time. If more wait,
// the demand is Waiting/t_slo, at which they would be. It is limited to twice the steady
// load plus one instance of the largest r_up, so ten thousand requests at once to a cold
// function do not take the whole cluster. For a jointly planned function the limit is the
// steady load plus that instance. The number of instances does not count, because plans
// would then follow themselves.
func (v *view) load(now time.Time) (steady, demand float64) {
	if v.Rate > 0 {
		steady = v.Rate * (1 + max(0, v.engine.settings.Headroom))
	}
	least := steady * max(1, v.Level)
	within := time.Second
	if v.SLO > 0 {
		within = v.SLO
	}
	burst := float64(v.Waiting-v.Patient) / within.Seconds()
	if v.joint {
		burst = v.surge(now, steady, within)
	}
	if burst <= steady {
		return steady, least
	}
	largest := 0.0
	for _, c := range v.choices(0, false) {
		t := c.Exec
		if v.joint && c.Mean > 0 {
			t = c.Mean
		}
		largest = max(largest, v.engine.settings.Bounds(c.Config, t, v.SLO, v.Queue).Up)
	}
	if v.joint { // The measured rate follows quickly by itself.
		return steady, max(least, min(burst, steady+largest))
	}
	return steady, max(least, min(burst, 2*steady+largest))
}

// surge is the load that waiting requests show beyond chance. Instances are planned for
// some waiting requests (see [capacity.Crew]): a standard deviation of R·t_slo is
// normal, and so is one request. While a function had no ready instance, the requests
// came in the time since then, which may be longer than t_slo: 8 requests after two
// seconds are (8 − 1)/2 s = 3.5/s.
func (v *view) surge(now time.Time, steady float64, within time.Duration) float64 {
	m, waiting := v.memory, v.Waiting-v.Patient
	beyond := func() float64 {
		return float64(waiting) - math.Sqrt(max(1, steady*within.Seconds()))
	}
	switch ready := len(v.parked) > 0 || slices.ContainsFunc(v.live, func(in Running) bool { return in.State == cluster.Ready }); {
	case waiting <= 0 || ready && beyond() <= steady*within.Seconds():
		m.cold = time.Time{}
	case m.cold.IsZero() && !ready:
		m.cold = now
	}
	if !m.cold.IsZero() {
		within = max(within, min(now.Sub(m.cold), longCold))
	}
	return beyond() / within.Seconds()
}

// longCold is the longest time over which surge spreads waiting requests.
const longCold = 10 * time.Second

// remember takes in the load and the demand, and sets the highest demand of the window and that of the hold. It
// remembers bursts of waiting requests for a shorter time than measured load: a burst needs instances only until it is
// served, unless one burst follows the other.
func remember(v *view, now time.Time) {
	s, held := v.engine.settings, hold(v)
	if !v.joint || s.Burst <= 0 {
		v.top = v.memory.Observe(now, v.demand, s.Stabilisation)
		v.peak = max(v.demand, v.memory.Within(now, held))
		return
	}
	m := v.memory
	steady, burst := m.Observe(now, v.steady, s.Stabilisation), m.bursts.Observe(now, v.demand, min(s.Burst, s.Stabilisation))
	v.top = max(steady, burst)
	v.peak = max(v.steady, v.demand, m.Within(now, held), m.bursts.Within(now, held))
}

// rise remembers when a load last rose steeply. Its zero value has seen none.
type rise struct {
	// from is the highest demand held at a time. last is when one was more than steepRise times as high soon after.
	from     float64
	at, last time.Time
}

// A load rises steeply if it is more than steepRise times the highest demand that was held riseWithin before or earlier.
const (
	steepRise  = 2
	riseWithin = 500 * time.Millisecond
)

// observe takes in a demand and the highest one that is held.
func (r *rise) observe(now time.Time, demand, held float64) {
	if demand > steepRise*r.from {
		r.last = now
	}
	if now.Sub(r.at) >= riseWithin {
		r.from, r.at = held, now
	}
}

// shortestHold is the least time for which a demand is held. The measured load itself needs about half of it to follow
// one that falls ([Meter]).
const shortestHold = 2 * time.Second

// hold is how long the highest demand is held after the load has fallen: from the whole window down to what a start
// pays for, the more credit the function has. Without an objective nobody would see a release that was wrong.
//
// For example the window is a minute, and an instance loads in 0.2 s. With full credit the demand is held for 2 s, with
// half of it for 60·(2/60)^½ = 11 s, and without any for the minute. If an instance loads in 6 s, a start pays after
// 6/0.2 = 30 s, and it is 30, 42 and 60 s.
func hold(v *view) time.Duration {
	longest := v.engine.settings.Stabilisation
	if v.memory.loading <= 0 || v.Credit <= 0 || v.SLO <= 0 {
		return longest
	}
	shorter := float64(v.memory.payback(shortestHold, longest)) / float64(longest)
	return time.Duration(float64(longest) * math.Pow(shorter, min(1, v.Credit)))
}
