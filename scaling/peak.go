package scaling

import (
	"cmp"
	"slices"
	"time"
)

// Peak remembers the highest demand of the last window. Its zero value has observed none.
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

// maxSamples bounds the number of samples in a window.
const maxSamples = 256

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
	// A lower demand right after a higher one may be forgotten early, by window/maxSamples.
	if n == 0 || now.Sub(p.samples[n-1].at) >= window/maxSamples {
		p.samples = append(p.samples, sample{now, demand})
	}
	return max(p.samples[0].demand, demand)
}

// Within returns the highest demand of the latest part of the window, 0 if there is none.
func (p *Peak) Within(now time.Time, part time.Duration) float64 {
	from, _ := slices.BinarySearchFunc(p.samples, part, func(s sample, part time.Duration) int {
		return cmp.Compare(part, now.Sub(s.at))
	})
	if from == len(p.samples) {
		return 0
	}
	return p.samples[from].demand
}

// Settled reports whether Peak has observed a whole window. Before that, for example
// after a restart of the provider, the load is not known well enough.
func (p *Peak) Settled(now time.Time, window time.Duration) bool { return now.Sub(p.since) >= window }
