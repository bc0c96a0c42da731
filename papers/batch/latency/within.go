package latency

import "math"

// Within integrates over execution times with spread at points that are deviations
// standard deviations apart, up to maxDeviations. weights has the weight of each point:
// the trapezoidal rule is exact to many digits for the normal distribution.
const (
	deviations    = 0.25
	maxDeviations = 4.0
)

var weights = newWeights()

func newWeights() (all [2*maxDeviations/deviations + 1]float64) {
	sum := 0.0
	for i := range all {
		z := deviations*float64(i) - maxDeviations
		all[i] = math.Exp(-z * z / 2)
		sum += all[i]
	}
	for i := range all {
		all[i] /= sum
	}
	return all
}

// Within is the part of the requests that are answered within t seconds if every batch
// finds a free instance. It is faster than [Waits.Spread] and agrees with it to about a
// thousandth. service must have a time for each batch size. spread is the standard
// deviation of the times' logarithm.
func (w *Waits) Within(service []float64, spread, t float64) float64 {
	var factors [len(weights)]float64
	if spread > 0 {
		for i := range factors {
			factors[i] = math.Exp(spread * (deviations*float64(i) - maxDeviations - spread/2))
		}
	}
	sum := 0.0
	for k, p := range w.batches {
		if p == 0 {
			continue
		}
		by, s := &w.by[k], service[k]
		if spread == 0 || s == 0 {
			sum += by.rest.within(t - s)
			if t >= (s+by.at)*(1-same) {
				sum += by.one
			}
			continue
		}
		sum += by.one * lognormal{s, spread}.within(t-by.at)
		if by.rest.total > 0 {
			for i, f := range factors {
				sum += weights[i] * by.rest.within(t-s*f)
			}
		}
	}
	return min(1, max(0, sum/w.mean))
}
