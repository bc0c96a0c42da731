package coldstart

import (
	"slices"
	"time"
)

// MaxRecent is the number of idle times that a forecast uses.
const MaxRecent = 32

// Recent has a function's last idle times, the latest last.
type Recent []time.Duration

// Add appends an idle time and drops the oldest if there are too many.
func (r *Recent) Add(idle time.Duration) {
	if len(*r) == MaxRecent {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, idle)
}

// Forecast predicts the next idle time by least squares of each on the one before. With
// fewer than four, or if all are equal, it returns their mean. There must be at least
// one.
func (idle Recent) Forecast() time.Duration {
	const few = 4
	mean := func(of Recent) float64 {
		sum := 0.0
		for _, d := range of {
			sum += float64(d)
		}
		return sum / float64(len(of))
	}
	if len(idle) < few {
		return time.Duration(mean(idle))
	}
	before, after := idle[:len(idle)-1], idle[1:]
	meanBefore, meanAfter := mean(before), mean(after)
	var products, squares float64
	for i := range before {
		x := float64(before[i]) - meanBefore
		products += x * (float64(after[i]) - meanAfter)
		squares += x * x
	}
	if squares == 0 {
		return time.Duration(mean(idle))
	}
	slope := max(-1, min(1, products/squares)) // Forecasts beyond these slopes diverge.
	next := meanAfter + slope*(float64(idle[len(idle)-1])-meanBefore)
	return time.Duration(max(0, next))
}
