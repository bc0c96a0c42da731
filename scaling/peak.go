package scaling

import "time"

// Peak remembers the highest demand of the last window. Its zero value has seen
// none.
type Peak struct {
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

// Observe adds the demand at now and returns the highest of the window.
func (p *Peak) Observe(now time.Time, demand float64, window time.Duration) float64 {
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

// Settled reports whether a whole window was watched. Before that, for example
// after a restart of the provider, nothing is known about the load.
func (p *Peak) Settled(now time.Time, window time.Duration) bool { return now.Sub(p.since) >= window }
