package batching

import (
	"math"
	"time"
)

// rateWindow is the time over which an arrival's weight falls to 1/e.
const rateWindow = time.Second

// arrivalRate estimates requests/s as a sum of past arrivals, each weighted by
// e^(-age/rateWindow)/rateWindow. A steady rate r gives
// Σ e^(-k/(r·1s)) ≈ r for r ≫ 1/s.
type arrivalRate struct {
	value float64
	last  time.Time
}

func (a *arrivalRate) add(now time.Time) {
	a.value = a.at(now) + 1/rateWindow.Seconds()
	a.last = now
}

func (a *arrivalRate) at(now time.Time) float64 {
	if a.last.IsZero() {
		return 0
	}
	return a.value * math.Exp(-now.Sub(a.last).Seconds()/rateWindow.Seconds())
}
