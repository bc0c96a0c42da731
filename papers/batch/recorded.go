package batch

import (
	"errors"
	"math"
	"sort"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

const (
	// minRecorded is the number of gaps needed to check whether a process fits. With
	// fewer, the percentile of their latencies is chance.
	minRecorded = 500
	// misfit is the relative difference between recorded requests and the fitted process
	// up to which they agree.
	misfit = 0.05
)

// reconsider checks a plan against the recorded requests. If they meet other latencies with
// its choice than predicted, the fitted process does not fit them. reconsider then makes the
// plan again, from the recorded requests alone.
func (o Objective) reconsider(plan Plan, shares []Share) (Plan, error) {
	record, err := latency.NewTrace(o.gaps())
	if err != nil || o.Arrivals == nil || o.agrees(*o.Arrivals, record, plan.Best, shares) && o.suffices(record, plan, shares) {
		return plan, nil
	}
	o.replayed = record
	return solve(o, shares)
}

// suffices reports whether the recorded requests confirm a plan's number of instances. They
// must meet the objective with it. If the plan says that even all instances with room are not
// enough, they must miss it with all of them. A process of two phases with the gaps' moments
// may have bursts of a hundred requests at once that never came.
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

// guess returns the least number of instances, at least from, with which the recorded requests
// meet the objective. It returns 0 if that is not known or has no room. It takes a small part
// of the time that the same takes for a process.
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

// gaps returns the recorded gaps, scaled to the rate of the arrivals, or nil if there are too
// few.
func (o Objective) gaps() []float64 {
	sum := 0.0
	for _, g := range o.Recorded {
		sum += g
	}
	if len(o.Recorded) < minRecorded || !(sum > 0) || o.Load() == 0 {
		return nil
	}
	factor := float64(len(o.Recorded)) / sum / o.Load()
	scaled := make([]float64, len(o.Recorded))
	for i, g := range o.Recorded {
		scaled[i] = g * factor
	}
	return scaled
}

// agrees reports whether a choice has nearly the same percentile and mean batch by a process
// as with the record; its cost depends on the batches. If either cannot be calculated, they
// agree.
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
