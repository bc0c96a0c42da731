package systems

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

// arrivals is what a tuner knows of how one function's requests come: the gaps
// between the last of them, and the process that is fitted to these (BATCH §III-A).
type arrivals struct {
	window *arrival.Window
	// gaps are the same, in s, the oldest at oldest once there are as many as can be.
	gaps   []float64
	oldest int
	last   time.Time
	// shape is what the process in use was fitted to; its N is 0 if it is Poisson.
	shape arrival.Moments
}

const (
	// remembered is how many gaps a fit is of: over an hour at a request a second, two
	// minutes at 30.
	remembered = 4096
	// fewestGaps is how many are needed for more than a rate.
	fewestGaps = 64
	// another is by how much the lag-1 correlation of gaps must differ to be another.
	another = 0.1
)

func newArrivals() *arrivals { return &arrivals{window: arrival.NewWindow(remembered)} }

// add takes in a request.
func (a *arrivals) add(at time.Time) {
	if !a.last.IsZero() {
		gap := at.Sub(a.last)
		a.window.Add(gap)
		if len(a.gaps) < remembered {
			a.gaps = append(a.gaps, max(0, gap.Seconds()))
		} else {
			a.gaps[a.oldest] = max(0, gap.Seconds())
			a.oldest = (a.oldest + 1) % remembered
		}
	}
	a.last = at
}

// recorded are the gaps in their order, in s.
func (a *arrivals) recorded() []float64 {
	return append(slices.Clone(a.gaps[a.oldest:]), a.gaps[:a.oldest]...)
}

// moments are those of the gaps; N is 0 if there are too few to tell of a shape.
func (a *arrivals) moments() arrival.Moments {
	if m := a.window.Moments(); m.N >= fewestGaps && m.Mean > 0 {
		return m
	}
	return arrival.Moments{}
}

// changed reports whether gaps have another shape than those of the process in use.
func (a *arrivals) changed() bool {
	now, then := a.moments(), a.shape
	if now.N == 0 || then.N == 0 {
		return now.N != then.N
	}
	ratio := now.SCV / max(then.SCV, 1e-9)
	return ratio > retune || ratio < 1/retune || math.Abs(now.Lag1-then.Lag1) > another
}

// fit is the process with the shape of the gaps and the rate of now in requests per
// second: a load that has doubled in the last seconds is twice as fast and as bursty
// as before. It is nil, for Poisson, where there is nothing to tell a shape from.
func (a *arrivals) fit(rate float64) *arrival.MAP {
	a.shape = a.moments()
	if a.shape.N == 0 || !(rate > 0) {
		return nil
	}
	m := a.shape
	m.Mean = 1 / rate
	fitted, _, err := arrival.Fit(m)
	if err != nil {
		return nil
	}
	return &fitted
}
