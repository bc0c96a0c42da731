package scaling

import "time"

// peak remembers the highest demand of the last window.
type peak struct {
	// since is when the first demand was seen.
	since time.Time
	// samples fall in demand and rise in time; the first is the peak.
	samples []sample
}

type sample struct {
	at     time.Time
	demand float64
}

// grains bounds how many samples a window keeps.
const grains = 64

// observe adds the demand at now and returns the highest of the window.
func (p *peak) observe(now time.Time, demand float64, window time.Duration) float64 {
	if p.since.IsZero() {
		p.since = now
	}
	for len(p.samples) > 0 && now.Sub(p.samples[0].at) >= window {
		p.samples = p.samples[1:]
	}
	n := len(p.samples)
	for n > 0 && p.samples[n-1].demand <= demand {
		n--
	}
	p.samples = p.samples[:n]
	// A lower demand right after a higher one may be forgotten one grain
	// early.
	if n == 0 || now.Sub(p.samples[n-1].at) >= window/grains {
		p.samples = append(p.samples, sample{now, demand})
	}
	return max(p.samples[0].demand, demand)
}

// settled reports whether a whole window was watched. Before that, for example
// after a restart of the provider, nothing is known about the load.
func (p *peak) settled(now time.Time, window time.Duration) bool { return now.Sub(p.since) >= window }

// highest is the highest demand of the window. What has waited needs no instances
// for longer than the burst takes, unless there is one after the other: it is
// remembered for a shorter time than load that came.
func (v *view) highest(now time.Time) float64 {
	s := v.engine.settings
	if !v.joint || s.Burst <= 0 {
		return v.memory.observe(now, v.demand, s.Stabilisation)
	}
	return max(v.memory.observe(now, v.steady, s.Stabilisation), v.memory.bursts.observe(now, v.demand, min(s.Burst, s.Stabilisation)))
}
