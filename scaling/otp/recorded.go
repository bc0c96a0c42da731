package otp

import (
	"errors"
	"math"
	"sort"

	"github.com/faas-infer/faas-infer/batching/arrival"
	"github.com/faas-infer/faas-infer/batching/latency"
)

const (
	// fewestRecorded is how many gaps tell whether a process fits: of fewer, the
	// percentile of what they meet is chance.
	fewestRecorded = 500
	// misfit is by which part what recorded requests meet may differ from what the
	// process fitted to them says.
	misfit = 0.05
	// composed is how many phases a process has that is tried where two do not do, and
	// coarser how many steps of timeouts, because each takes longer.
	composed, coarser = 4, 16
)

// reconsider checks a plan against the recorded requests themselves. Where its choice
// would meet something else with them than was predicted, the process that was
// fitted has not got what they have, and the plan is made anew: with four phases if
// these have, else from the recorded requests alone.
func (o Objective) reconsider(plan Plan, shares []Share, runners int) (Plan, error) {
	gaps := o.gaps()
	record, err := latency.NewTrace(gaps)
	if err != nil || o.Arrivals == nil || o.agrees(*o.Arrivals, record, plan.Best, shares) && o.suffices(record, plan, shares) {
		return plan, nil
	}
	if o.Composed {
		if again, ok := o.composed(gaps, record, plan, shares, runners); ok {
			return again, nil
		}
	}
	o.replayed = record
	return solve(o, shares, runners)
}

// suffices reports whether the recorded requests, too, meet the objective with the number
// of instances that a plan says, and do not with all that there is room for if it says
// that these are not enough. A process of two phases that has the gaps' moments may have
// bursts that never came, of a hundred requests at once.
func (o Objective) suffices(record *latency.Trace, plan Plan, shares []Share) bool {
	c := plan.Best
	at := shares[c.Share]
	short := errors.Is(plan.Short, ErrRoom)
	if at.Instances == 0 || o.SLO <= 0 || plan.Short != nil && !short {
		return true
	}
	if short {
		c.Instances = at.Instances
	}
	return o.reached(record, c, seconds(at.Exec)) != short
}

// reached reports whether the recorded requests meet the objective with a choice.
func (o Objective) reached(record *latency.Trace, c Choice, exec []float64) bool {
	r := latency.Reality{Spread: o.Spread, Instances: c.Instances}
	return record.Within(c.Batch, c.Timeout.Seconds(), exec, r, o.SLO.Seconds()) >= o.Quantile
}

// guess is the least number of instances with which the recorded requests meet the
// objective, of those from a number on that there is room for; 0 if nothing is known. It
// takes a small part of the time that computing the same takes for any process.
func (s *search) guess(c Choice, from int) int {
	if s.SLO <= 0 || s.replayed != nil {
		return 0
	}
	if s.record == nil {
		var err error
		if s.record, err = latency.NewTrace(s.gaps()); err != nil {
			return 0
		}
	}
	most := s.shares[c.Share].Instances
	n := from + sort.Search(most-from+1, func(i int) bool {
		c.Instances = from + i
		return s.reached(s.record, c, s.exec[c.Share])
	})
	if n > most {
		return 0
	}
	return n
}

// composed is the plan for a process of four phases, if that agrees with what was
// recorded.
func (o Objective) composed(gaps []float64, record *latency.Trace, plan Plan, shares []Share, runners int) (Plan, bool) {
	four, _, err := arrival.FitKPC(gaps, composed)
	if err != nil || four.Order() <= o.Arrivals.Order() || !o.agrees(four, record, plan.Best, shares) {
		return plan, false
	}
	other := o
	other.Arrivals, other.Steps = &four, min(coarser, o.steps())
	again, err := solve(other, shares, runners)
	return again, err == nil && o.agrees(four, record, again.Best, shares)
}

// gaps are the recorded ones at the rate of the arrivals; none if there are too few.
func (o Objective) gaps() []float64 {
	sum := 0.0
	for _, g := range o.Recorded {
		sum += g
	}
	if len(o.Recorded) < fewestRecorded || !(sum > 0) || o.load() == 0 {
		return nil
	}
	factor := float64(len(o.Recorded)) / sum / o.load()
	scaled := make([]float64, len(o.Recorded))
	for i, g := range o.Recorded {
		scaled[i] = g * factor
	}
	return scaled
}

// agrees reports whether a choice has nearly the same percentile, and batches, which its
// cost hangs on, by a process as with what was recorded. Parts that cannot be told apart agree.
func (o Objective) agrees(m arrival.MAP, record *latency.Trace, c Choice, shares []Share) bool {
	exec := seconds(shares[c.Share].Exec)
	percentile := func(w *latency.Waits) float64 {
		return w.Spread(exec, latency.Reality{Spread: o.Spread}).Quantile(o.Quantile)
	}
	a, err := latency.NewAnalysis(m, c.Batch)
	if err != nil {
		return true
	}
	predicted, err := a.Waits(c.Batch, c.Timeout.Seconds())
	if err != nil {
		return true
	}
	met, err := record.Waits(c.Batch, c.Timeout.Seconds())
	if err != nil {
		return true
	}
	near := func(a, b float64) bool { return math.Abs(a/b-1) <= misfit }
	return near(predicted.MeanBatch(), met.MeanBatch()) && near(percentile(predicted), percentile(met))
}
