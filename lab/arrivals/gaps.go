package arrivals

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Gaps is the distribution of the times between arrivals around their mean.
type Gaps struct {
	even bool
	// shape of the gamma distribution, 0 for exponential gaps.
	shape float64
}

// The gaps without a parameter.
var (
	// Even gaps are all equal.
	Even = Gaps{even: true}
	// Exponential gaps are those of independent users.
	Exponential = Gaps{}
)

// The range of GammaGaps. Below it, gaps are practically even. Above it, the gap after one
// request in millions has nearly all of the time.
const (
	minCV = 0.01
	maxCV = 100
)

// gammaGaps returns gamma-distributed gaps with the coefficient of variation cv. Their
// shape is 1/cv².
func gammaGaps(cv float64) (Gaps, error) {
	if !(cv >= minCV && cv <= maxCV) {
		return Gaps{}, fmt.Errorf("a coefficient of variation of %v: it must be from %v to %v", cv, minCV, maxCV)
	}
	return Gaps{shape: 1 / (cv * cv)}, nil
}

// draw returns one gap of mean 1.
func (g Gaps) draw(rng *rand.Rand) float64 {
	switch {
	case g.even:
		return 1
	case g.shape == 0 || g.shape == 1:
		return rng.ExpFloat64()
	default:
		return gamma(g.shape, rng) / g.shape
	}
}

// gamma draws from the gamma distribution of a shape and scale 1 by Marsaglia and
// Tsang's method (2000), which accepts more than 95 % of its tries. Below shape 1 it draws
// with shape+1 and multiplies by U^(1/shape).
func gamma(shape float64, rng *rand.Rand) float64 {
	if shape < 1 {
		return gamma(shape+1, rng) * math.Exp(-rng.ExpFloat64()/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		// 1-U is never 0, so its logarithm is finite.
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
