// Package delay describes how long transfers between functions take (Gillis, ICDCS 2021,
// §IV-A): exponentially modified Gaussians, how to fit them to measurements, round trips of
// two of them, and the largest of several, which a master waits for. It knows no plans.
// Begin at [Transfer] and [Largest]. All times are in milliseconds.
package delay

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// EMG is an exponentially modified Gaussian, the sum of a normal and an exponential
// variable. Its parameters are those of scipy's exponnorm(K, loc, scale): the normal has
// the mean Loc and the standard deviation Scale, the exponential the mean K·Scale. The
// paper calls K the rate (§IV-A).
type EMG struct {
	K, Loc, Scale float64
}

// Mean returns the mean.
func (e EMG) Mean() float64 { return e.Loc + e.K*e.Scale }

// Moments returns mean, variance and tail.
func (e EMG) Moments() Moments {
	theta := e.K * e.Scale
	return newMoments(e.Mean(), e.Scale*e.Scale+theta*theta, 2*theta*theta*theta)
}

// CDF returns the probability of a value of at most x.
func (e EMG) CDF(x float64) float64 { return emgCDF(x-e.Loc, e.Scale, e.K*e.Scale) }

// Quantile returns the value that a share q of all values stay below, q in (0, 1).
func (e EMG) Quantile(q float64) float64 {
	m := e.Moments()
	if m.Variance == 0 {
		return m.Mean
	}
	return bisect(e.CDF, q, m.Mean, math.Sqrt(m.Variance))
}

// bisect inverts a distribution function at q. It begins around mid, in steps of width.
func bisect(cdf func(float64) float64, q, mid, width float64) float64 {
	low, high := mid-width, mid+width
	for step := width; cdf(low) > q && step < 1e9*width; step *= 2 {
		low -= step
	}
	for step := width; cdf(high) < q && step < 1e9*width; step *= 2 {
		high += step
	}
	for high-low > 1e-9*(width+math.Abs(mid)) {
		if m := (low + high) / 2; cdf(m) < q {
			low = m
		} else {
			high = m
		}
	}
	return (low + high) / 2
}

// normalCDF returns the distribution function of the standard normal.
func normalCDF(u float64) float64 { return math.Erfc(-u/math.Sqrt2) / 2 }

// erfcx returns exp(x²)·erfc(x) for x >= 0.
func erfcx(x float64) float64 {
	if x < 20 {
		return math.Exp(x*x) * math.Erfc(x)
	}
	i := 1 / (x * x)
	return (1 - i/2*(1-1.5*i)) / (x * math.Sqrt(math.Pi))
}

// emgCDF returns the probability that a normal of mean 0 and deviation sigma and an
// exponential of mean theta add up to at most x. Either may be 0.
func emgCDF(x, sigma, theta float64) float64 {
	switch {
	case sigma == 0 && x < 0:
		return 0
	case sigma == 0 && theta == 0:
		return 1
	case sigma == 0:
		return -math.Expm1(-x / theta)
	case theta == 0:
		return normalCDF(x / sigma)
	}
	u, v := x/sigma, sigma/theta
	// The term is exp(v²/2 - uv)·Φ(u - v); its factors overflow where v is large.
	term := 0.0
	if d := v - u; d > 0 {
		term = math.Exp(-u*u/2) * erfcx(d/math.Sqrt2) / 2
	} else {
		term = math.Exp(v*v/2-u*v) * normalCDF(-d)
	}
	return max(0, normalCDF(u)-term)
}

// minSamples is the minimum number of samples of a fit.
const minSamples = 20

// FitEMG returns the EMG with the maximum likelihood for the samples, found by expectation
// maximisation: each step replaces the exponential's unknown value in every sample by its
// mean under the parameters so far. It begins at the method of moments. It fails with
// fewer than 20 samples, or if one is not a finite number.
func FitEMG(samples []float64) (EMG, error) {
	if len(samples) < minSamples {
		return EMG{}, fmt.Errorf("fit of a delay: %d samples: give at least %d", len(samples), minSamples)
	}
	for _, x := range samples {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return EMG{}, errors.New("fit of a delay: a sample is not a finite number")
		}
	}
	if slices.Min(samples) == slices.Max(samples) {
		return EMG{Loc: samples[0]}, nil
	}
	m := momentsOf(samples)
	// Neither part may vanish: the other could not grow again.
	deviation := math.Sqrt(m.Variance)
	floor := 1e-4 * deviation
	theta := min(max(math.Cbrt(max(0, m.Tail*m.Variance/2)), 0.05*deviation), 0.99*deviation)
	sigma := math.Sqrt(m.Variance - theta*theta)
	mu := m.Mean - theta
	for range 2000 {
		rest, first, second := 0.0, 0.0, 0.0
		for _, x := range samples {
			// The exponential's value is a normal of mean c and deviation sigma, cut at 0.
			c := x - mu - sigma*sigma/theta
			h := hazard(-c / sigma)
			ex := c + sigma*h
			first += ex
			second += c*c + sigma*sigma + c*sigma*h
			rest += x * ex
		}
		n := float64(len(samples))
		nextTheta, nextMu := first/n, m.Mean-first/n
		// E[(x - mu - e)²] = Var(x) + E[e²] - E[e]² - 2·Cov(x, e)
		variance := m.Variance + second/n - nextTheta*nextTheta - 2*(rest/n-m.Mean*nextTheta)
		nextSigma := max(floor, math.Sqrt(max(0, variance)))
		moved := math.Abs(nextTheta-theta) + math.Abs(nextSigma-sigma) + math.Abs(nextMu-mu)
		mu, sigma, theta = nextMu, nextSigma, max(floor, nextTheta)
		if moved < 1e-7*deviation {
			break
		}
	}
	return EMG{theta / sigma, mu, sigma}, nil
}

// hazard returns the standard normal's density over its tail, φ(a)/(1-Φ(a)).
func hazard(a float64) float64 {
	if a > 0 {
		return math.Sqrt(2/math.Pi) / erfcx(a/math.Sqrt2)
	}
	return math.Exp(-a*a/2) / math.Sqrt(2*math.Pi) / normalCDF(-a)
}
