package batching

import (
	"math"
	"time"
)

// rateWindow is the time over which an arrival's weight falls to 1/e. It is short
// compared with the seconds in which a scaling engine answers a burst. It is long
// enough for some tens of arrivals at rates where batches matter.
const rateWindow = 300 * time.Millisecond

// arrivalRate estimates requests/s as a sum of past arrivals, each weighted by
// e^(-age/rateWindow)/rateWindow. A steady rate r gives
// Σ e^(-k/(r·rateWindow))/rateWindow ≈ r for r ≫ 1/rateWindow.
type arrivalRate struct {
	value float64
	last  time.Duration
}

func (a *arrivalRate) add(now time.Duration) {
	a.value = a.at(now) + 1/rateWindow.Seconds()
	a.last = now
}

func (a *arrivalRate) at(now time.Duration) float64 {
	switch x := float64(now-a.last) / float64(rateWindow); {
	case x == 0:
		return a.value
	case x < 1e-3:
		return a.value * (1 - x + x*x/2) // This is e^-x up to x³/6 < 2·10⁻¹⁰, and quicker.
	default:
		return a.value * math.Exp(-x)
	}
}
