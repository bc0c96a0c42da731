package scaling

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// load is the steady load and the demand in requests per second, which is the steady
// load at the function's level or more. At a load of
// R, no more than R·t_slo requests can wait and still be in time; if more do,
// the demand is what would let them, Waiting/t_slo. It is no more than twice
// the steady load and one instance of the largest r_up, so that ten thousand
// requests at once to a cold function do not take the whole cluster; planned
// jointly, than the load and that instance. How many instances there are does not
// count, or plans would follow themselves.
func (v *view) load(now time.Time) (steady, demand float64) {
	if v.Rate > 0 {
		steady = v.Rate * (1 + max(0, v.engine.settings.Headroom))
	}
	least := steady * max(1, v.Level)
	within := time.Second
	if v.SLO > 0 {
		within = v.SLO
	}
	burst := float64(v.Waiting) / within.Seconds()
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
		largest = max(largest, v.engine.settings.Bounds(c.Config.Batch, t, v.SLO, v.Queue).Up)
	}
	if v.joint { // The rate itself is quick to follow.
		return steady, max(least, min(burst, steady+largest))
	}
	return steady, max(least, min(burst, 2*steady+largest))
}

// surge is the load that waiting requests show beyond chance. That some wait is what
// instances are planned for (crew): of R·t_slo, a standard deviation more is usual,
// and one request is nothing. While a function had no ready instance, they came in
// the time since, which is longer than t_slo: of 8 after two seconds, (8 − 1)/2 s =
// 3.5/s.
func (v *view) surge(now time.Time, steady float64, within time.Duration) float64 {
	m := v.memory
	beyond := func() float64 {
		return float64(v.Waiting) - math.Sqrt(max(1, steady*within.Seconds()))
	}
	switch ready := len(v.parked) > 0 || slices.ContainsFunc(v.live, func(in Running) bool { return in.State == cluster.Ready }); {
	case v.Waiting <= 0 || ready && beyond() <= steady*within.Seconds():
		m.cold = time.Time{}
	case m.cold.IsZero() && !ready:
		m.cold = now
	}
	if !m.cold.IsZero() {
		within = max(within, min(now.Sub(m.cold), longCold))
	}
	return beyond() / within.Seconds()
}

// longCold is the longest time in which waiting requests are said to have come.
const longCold = 10 * time.Second

// highest is the highest demand of the window. Requests that have waited need no instances
// for longer than the burst takes, unless there is one after the other: it is
// remembered for a shorter time than load that came.
func (v *view) highest(now time.Time) float64 {
	s := v.engine.settings
	if !v.joint || s.Burst <= 0 {
		return v.memory.Observe(now, v.demand, s.Stabilisation)
	}
	return max(v.memory.Observe(now, v.steady, s.Stabilisation), v.memory.bursts.Observe(now, v.demand, min(s.Burst, s.Stabilisation)))
}
