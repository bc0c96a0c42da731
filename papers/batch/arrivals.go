package batch

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// arrivals records how one function's requests arrive: the gaps between the last ones, and
// the process that is fitted to them (BATCH §III-A).
type arrivals struct {
	window *arrival.Window
	// gaps has the gaps in s, as a ring that begins at oldest once it is full.
	gaps   []float64
	oldest int
	last   time.Time
	// shape has the moments to which the process in use was fitted. Its N is 0 if the
	// process is Poisson.
	shape arrival.Moments
}

const (
	// maxGaps is the maximum number of gaps for a fit: over an hour at one request a
	// second, two minutes at 30.
	maxGaps = 4096
	// minGaps is the number of gaps that are needed for more than a rate.
	minGaps = 64
	// lagChange is the difference of the gaps' lag-1 correlation that counts as a change.
	lagChange = 0.1
)

func newArrivals() *arrivals { return &arrivals{window: arrival.NewWindow(maxGaps)} }

// add records a request.
func (a *arrivals) add(at time.Time) {
	if !a.last.IsZero() {
		gap := at.Sub(a.last)
		a.window.Add(gap)
		if len(a.gaps) < maxGaps {
			a.gaps = append(a.gaps, max(0, gap.Seconds()))
		} else {
			a.gaps[a.oldest] = max(0, gap.Seconds())
			a.oldest = (a.oldest + 1) % maxGaps
		}
	}
	a.last = at
}

// recorded returns the gaps in their order, in s.
func (a *arrivals) recorded() []float64 {
	return append(slices.Clone(a.gaps[a.oldest:]), a.gaps[:a.oldest]...)
}

// moments returns the gaps' moments. N is 0 if there are too few gaps for a shape.
func (a *arrivals) moments() arrival.Moments {
	if m := a.window.Moments(); m.N >= minGaps && m.Mean > 0 {
		return m
	}
	return arrival.Moments{}
}

// changed reports whether the gaps' shape differs from that of the process in use.
func (a *arrivals) changed() bool {
	now, then := a.moments(), a.shape
	if now.N == 0 || then.N == 0 {
		return now.N != then.N
	}
	ratio := now.SCV / max(then.SCV, 1e-9)
	return ratio > retune || ratio < 1/retune || math.Abs(now.Lag1-then.Lag1) > lagChange
}

// fit returns the process with the shape of the gaps and the present rate in requests per
// second: a load that has doubled in the last seconds is twice as fast and as bursty as
// before. It returns nil, for Poisson, if there are too few gaps for a shape.
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
