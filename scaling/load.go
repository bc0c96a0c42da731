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
	least, planned := steady*max(1, v.Level), steady
	if v.Level > 0 && v.Level < 1 {
		least, planned = steady*v.Level, steady*v.Level
	}
	within := time.Second
	if v.SLO > 0 {
		within = v.SLO
	}
	burst := float64(v.Waiting-v.Patient) / within.Seconds()
	if v.joint {
		burst = v.surge(now, steady, within)
	}
	if burst <= steady {
		return planned, least
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
		return planned, max(least, min(burst, steady+largest))
	}
	return planned, max(least, min(burst, 2*steady+largest))
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

// highest is the highest demand of the window. It remembers bursts of waiting requests
// for a shorter time than measured load: a burst needs instances only until it is served,
// unless one burst follows the other.
func (v *view) highest(now time.Time) float64 {
	s := v.engine.settings
	if !v.joint || s.Burst <= 0 {
		return v.memory.Observe(now, v.demand, s.Stabilisation)
	}
	return max(v.memory.Observe(now, v.steady, s.Stabilisation), v.memory.bursts.Observe(now, v.demand, min(s.Burst, s.Stabilisation)))
}
