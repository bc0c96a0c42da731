// Package otp is BATCH's performance optimiser (BATCH, SC 2020, §III-C and §IV),
// which INFless calls the "on top of platform" way: one config, batch size and
// timeout for all of a function's instances. It knows nothing of the platform but
// what an instance costs and how long it takes: a batch that leaves the buffer is
// taken to be executed at once.
//
// The package is pure.
package otp

import (
	"math"
	"time"
)

// Buffer is BATCH's buffer of requests that arrive at random (Poisson) at Rate per
// second. A batch leaves it when Batch requests are there, or Timeout after the
// first of them came.
type Buffer struct {
	Rate    float64
	Batch   int
	Timeout time.Duration
}

// Sizes is the probability that a batch has 1, 2, … Batch requests, Eq. 7: that
// so many less one come within the timeout after the first.
func (b Buffer) Sizes() []float64 {
	sizes := make([]float64, b.Batch)
	mean := min(max(0, b.Rate)*b.Timeout.Seconds(), certain)
	rest := 1.0
	for k := range b.Batch - 1 {
		sizes[k] = poisson(mean, k)
		rest -= sizes[k]
	}
	sizes[b.Batch-1] = max(0, rest)
	return sizes
}

// certain is a mean beyond which every batch fills.
const certain = 1e6

// poisson is mean^k·e^(−mean)/k!, by its logarithm: neither factor fits a float for
// a large mean.
func poisson(mean float64, k int) float64 {
	if mean <= 0 {
		if k == 0 {
			return 1
		}
		return 0
	}
	fact, _ := math.Lgamma(float64(k) + 1)
	return math.Exp(float64(k)*math.Log(mean) - mean - fact)
}

// fill is τ, Eq. 10: how long it takes until Batch requests are there. It is no
// longer than the timeout.
func (b Buffer) fill() time.Duration {
	tau := float64(b.Batch-1) / b.Rate * float64(time.Second)
	if !(tau < float64(b.Timeout)) {
		return b.Timeout
	}
	return time.Duration(tau)
}

// outcome is a buffer with the sizes of its batches.
type outcome struct {
	Buffer
	sizes []float64
	// mean is the mean size, tau is τ.
	mean float64
	tau  time.Duration
}

func (b Buffer) outcome() outcome {
	o := outcome{Buffer: b, sizes: b.Sizes(), tau: b.fill()}
	for k, p := range o.sizes {
		o.mean += float64(k+1) * p
	}
	return o
}

// Within is F_R(t), Eq. 9: the part of the requests that are answered within t, if
// a batch of k takes exec[k-1].
//
// A request is in a batch of k with probability ρ_k (Eq. 8). Alone, it has waited
// for the whole timeout. In a batch that did not fill, its wait is uniform between
// nothing and the timeout, in one that filled, between nothing and τ. Eq. 9 has
// the same sum for execution times that lie further apart than the waits; here
// these may overlap.
func (b Buffer) Within(t time.Duration, exec []time.Duration) float64 {
	return b.outcome().within(t, exec)
}

func (o outcome) within(t time.Duration, exec []time.Duration) float64 {
	sum := 0.0
	for k, p := range o.sizes {
		rho, wait := float64(k+1)*p/o.mean, o.Timeout
		if k == o.Batch-1 {
			wait = o.tau
		}
		switch slack := t - exec[k]; {
		case slack >= wait:
			sum += rho
		case slack > 0 && k > 0:
			sum += rho * float64(slack) / float64(wait)
		}
	}
	return min(1, sum)
}

// Busy is the execution time in seconds that a request costs on average: Eq. 1's
// S·I per request, over the sizes that batches have.
func (b Buffer) Busy(exec []time.Duration) float64 { return b.outcome().busy(exec) }

func (o outcome) busy(exec []time.Duration) float64 {
	sum := 0.0
	for k, p := range o.sizes {
		sum += p * exec[k].Seconds()
	}
	return sum / o.mean
}
