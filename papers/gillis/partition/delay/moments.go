package delay

import (
	"math"
	"slices"
)

// Moments are what the planner carries of a time.
type Moments struct {
	// Mean is in ms, Variance in ms².
	Mean, Variance float64
	// Tail says how much longer than a normal time's the upper tail is, in ms: the third
	// central moment over the variance, or more if [Moments.At] is too low for 99.9 % then.
	// It is at most 2σ, as for an exponential time.
	Tail float64
}

// Plus returns the moments of the sum of independent times. Its tail errs on the long
// side.
func (m Moments) Plus(o Moments) Moments {
	return Moments{m.Mean + o.Mean, m.Variance + o.Variance, max(m.Tail, o.Tail)}
}

// At returns the time that a share of percentile percent of requests stay below, 0 for
// the mean. It adds the skew to the normal quantile z, as Cornish and Fisher do:
// mean + z·σ + (z²-1)/6·tail. It adds no more than an exponential time of the same
// variance has. Below the 84th percentile a skew makes times shorter; At leaves it out
// there, and returns the mean below the median: both err on the long side.
func (m Moments) At(percentile float64) float64 {
	return m.Mean + NewExcess(percentile, m.Tail).Of(m.Variance)
}

// Excess is what a percentile is above the mean, as a function of the variance: the least
// of slope·σ + base and steepest·σ. It rises and is concave in the variance.
type Excess struct {
	slope, base, steepest float64
}

// NewExcess returns the excess of a percentile, 0 for the mean, for times with this tail.
func NewExcess(percentile, tail float64) Excess {
	q := percentile / 100
	if q <= 0.5 {
		return Excess{}
	}
	z := math.Sqrt2 * math.Erfinv(2*q-1)
	if z <= 1 {
		return Excess{z, 0, z}
	}
	return Excess{z, (z*z - 1) / 6 * max(0, tail), max(z, -math.Log1p(-q)-1)}
}

// Of returns the excess for a variance in ms².
func (e Excess) Of(variance float64) float64 {
	deviation := math.Sqrt(variance)
	return min(e.slope*deviation+e.base, e.steepest*deviation)
}

// momentsOf returns mean, variance and tail of samples. It sorts them first, so that their
// order makes no difference.
func momentsOf(samples []float64) Moments {
	sorted := slices.Sorted(slices.Values(samples))
	n := float64(len(sorted))
	var mean, second, third float64
	for _, x := range sorted {
		mean += x / n
	}
	for _, x := range sorted {
		d := x - mean
		second += d * d / n
		third += d * d * d / n
	}
	return newMoments(mean, second, third)
}

// newMoments returns the moments of a time with these central moments.
func newMoments(mean, second, third float64) Moments {
	if second <= 0 {
		return Moments{Mean: mean}
	}
	return Moments{mean, second, max(0, min(third/second, 2*math.Sqrt(second)))}
}

// rare is the share of requests whose latency Moments.Tail makes right, and rareZ its
// normal quantile.
const (
	rare  = 0.999
	rareZ = 3.090232306167813
)

// withRare raises the tail so that At is not below ms for the share rare.
func (m Moments) withRare(ms float64) Moments {
	deviation := math.Sqrt(m.Variance)
	tail := (ms - m.Mean - rareZ*deviation) * 6 / (rareZ*rareZ - 1)
	m.Tail = min(max(m.Tail, tail), 2*deviation)
	return m
}
