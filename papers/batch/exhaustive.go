package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// waits is an analysis of a process, or a record of arrivals.
type waits interface {
	Waits(batch int, timeout float64) (*latency.Waits, error)
}

// search is one exhaustive search.
type search struct {
	Objective
	shares []Share
	// exec is Share.Exec in seconds.
	exec     [][]float64
	arrivals arrival.MAP
	analysis waits
	batches  []int
	// record has the recorded requests, once it is needed.
	record *latency.Trace
	// longest is the longest timeout that is tried.
	longest time.Duration
	// met has all choices that meet the objective, if instances are bounded.
	met []Choice

	best, fastest, cheapest        Choice
	found, anyFastest, anyCheapest bool
}

func newSearch(o Objective, shares []Share) (*search, error) {
	o.Steps = o.steps()
	o.Quantile = min(max(o.Quantile, 0), 1-1e-9)
	s := &search{Objective: o, shares: shares}
	var err error
	if s.arrivals, s.batches, s.longest, err = o.Process(shares); err != nil {
		return nil, err
	}
	for _, share := range shares {
		s.exec = append(s.exec, seconds(share.Exec))
	}
	if s.analysis = o.replayed; o.replayed == nil {
		s.analysis, err = latency.NewAnalysis(s.arrivals, s.batches[len(s.batches)-1])
	}
	if err == nil && s.below() {
		err = s.prune()
	}
	return s, err
}

// steps is the number of parts into which the search divides the longest timeout.
func (o Objective) steps() int {
	if o.Steps <= 0 {
		return DefaultSteps
	}
	return o.Steps
}

// all tries every choice.
func (s *search) all() error {
	timeouts := s.timeouts
	for step := 0; s.timeouts == nil && step <= s.Steps; step++ {
		timeouts = append(timeouts, s.longest*time.Duration(step)/time.Duration(s.Steps))
	}
	if s.below() {
		slices.Reverse(timeouts) // The cheapest comes first.
	}
	for _, timeout := range timeouts {
		for _, b := range s.batches {
			if b == 1 && timeout > 0 && s.timeouts == nil {
				continue // A batch of one does not wait.
			}
			if err := s.with(b, timeout); err != nil {
				return fmt.Errorf("batches of %d, a timeout of %v: %w", b, timeout, err)
			}
		}
		if s.below() {
			s.batches = sizes(s.shares)
		}
	}
	return nil
}

// with tries one batch size and timeout on all shares.
func (s *search) with(b int, timeout time.Duration) error {
	var w *latency.Waits
	var batches []float64
	for i := range s.shares {
		if !s.sensible(i, b, timeout) {
			continue
		}
		if w == nil {
			var err error
			if w, err = s.analysis.Waits(b, timeout.Seconds()); err != nil {
				return err
			}
			batches = w.Batches()
		}
		c := Choice{Share: i, Batch: b, Timeout: timeout, MeanBatch: w.MeanBatch()}
		c.Cost = Cost(s.shares[i], s.exec[i], batches, c.MeanBatch)
		if s.below() && c.Cost >= s.Below {
			continue
		}
		c.Busy = w.Busy(s.Load(), s.exec[i])
		s.try(c, w)
	}
	if s.below() && w != nil {
		s.drop(b, w.MeanBatch())
	}
	return nil
}

// sensible reports whether the search considers a choice: see [Solve].
func (s *search) sensible(share, b int, timeout time.Duration) bool {
	at := s.shares[share]
	if !at.offers(b) {
		return false
	}
	return b == 1 || s.SLO <= 0 || at.Exec[b-1] <= s.SLO && timeout+at.Exec[0] <= s.SLO
}

// try evaluates one choice.
func (s *search) try(c Choice, w *latency.Waits) {
	if s.Budget <= 0 && !s.bounded() && s.found && cheaper(c, s.best) > 0 {
		return // It costs more than a choice that meets the SLO.
	}
	meets := true
	if s.SLO > 0 {
		c.Within = w.Within(s.exec[c.Share], s.Spread, s.SLO.Seconds())
		meets = c.Within >= s.Quantile
	}
	if meets && (!s.anyCheapest || cheaper(c, s.cheapest) < 0) {
		s.cheapest, s.anyCheapest = c, true
	}
	switch {
	case !meets && s.below():
	case !meets && !s.anyCheapest:
		s.quick(c, false, w)
	case !meets || s.Budget > 0 && c.Cost > s.Budget:
	case s.Budget > 0:
		s.quick(c, true, w)
	default:
		s.take(c)
	}
}

// quick evaluates a choice whose percentile must be known. It skips the choice if the
// percentile is longer than that of the best one so far.
func (s *search) quick(c Choice, meets bool, w *latency.Waits) {
	best, known := s.fastest, s.anyFastest
	if meets {
		best, known = s.best, s.found
	}
	if known && !(meets && s.bounded()) && w.Within(s.exec[c.Share], s.Spread, best.Percentile.Seconds()) < s.Quantile {
		return
	}
	c.Percentile = percentile(s.distribution(c, w), s.Quantile)
	if meets {
		s.take(c)
		return
	}
	if !known || better(c, best) < 0 {
		s.fastest, s.anyFastest = c, true
	}
}

// distribution returns the distribution of a choice's latencies if every batch finds an
// instance.
func (s *search) distribution(c Choice, w *latency.Waits) *latency.Distribution {
	return w.Spread(s.exec[c.Share], latency.Reality{Spread: s.Spread})
}

// take records a choice that meets the objective.
func (s *search) take(c Choice) {
	if s.bounded() {
		s.met = append(s.met, c)
	}
	if !s.found || better(c, s.best) < 0 {
		s.best, s.found = c, true
	}
}

// better compares two choices; a negative result prefers a.
func better(a, b Choice) int {
	if d := cmp.Compare(a.Percentile, b.Percentile); d != 0 {
		return d
	}
	return cheaper(a, b)
}

// alike is the relative difference up to which costs count as equal: to save a thousandth,
// no request should wait for most of its objective.
const alike = 1e-3

// cheaper compares two choices by cost, in steps of alike. Of equal costs, the simpler choice
// is less.
func cheaper(a, b Choice) int {
	step := func(c Choice) float64 { return math.Round(math.Log(max(c.Cost, math.SmallestNonzeroFloat64)) / alike) }
	return cmp.Or(cmp.Compare(step(a), step(b)), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Timeout, b.Timeout), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Share, b.Share))
}

// percentile is P_i, rounded up to a microsecond.
func percentile(d *latency.Distribution, quantile float64) time.Duration {
	const rounding = 1e-7 // of a microsecond, so 10 ms stay 10 ms
	return time.Duration(math.Ceil(d.Quantile(quantile)*1e6-rounding)) * time.Microsecond
}

// phases is the number of the arrivals' phases; 0 for recorded ones.
func (s *search) phases() int {
	if s.replayed != nil {
		return 0
	}
	return s.arrivals.Order()
}

// plan returns the result of the search.
func (s *search) plan() (Plan, error) {
	p := Plan{Best: s.best, Phases: s.phases()}
	switch {
	case s.found:
	case s.anyCheapest:
		p.Best = s.cheapest
		p.Short = fmt.Errorf("%w of %v for a request: the cheapest costs %v", ErrBudget, s.Budget, p.Best.Cost)
	case s.anyFastest:
		p.Best = s.fastest
		p.Short = fmt.Errorf("%w of %v at percentile %v: the lowest that can be met is %v", ErrSLO, s.SLO, 100*s.Quantile, p.Best.Percentile)
	default:
		return Plan{}, errNothing
	}
	err := s.complete(&p.Best)
	return p, err
}

// complete adds the percentile of a choice if the search did not need it.
func (s *search) complete(c *Choice) error {
	if c.Percentile > 0 {
		return nil
	}
	w, err := s.analysis.Waits(c.Batch, c.Timeout.Seconds())
	if err == nil {
		c.Percentile = percentile(s.distribution(*c, w), s.Quantile)
	}
	return err
}
