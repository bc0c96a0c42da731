package otp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching/latency"
)

// search is one exhaustive search.
type search struct {
	Objective
	shares []Share
	// exec is Share.Exec in seconds.
	exec     [][]float64
	analysis *latency.Analysis
	batches  []int
	// longest is the longest timeout that is tried.
	longest time.Duration
	// keep has all choices that meet the objective kept in met.
	keep bool
	met  []Choice

	best, fastest, cheapest        Choice
	found, anyFastest, anyCheapest bool
}

func newSearch(o Objective, shares []Share) (*search, error) {
	if o.Steps <= 0 {
		o.Steps = DefaultSteps
	}
	o.Quantile = min(max(o.Quantile, 0), 1-1e-9)
	s := &search{Objective: o, shares: shares, batches: sizes(shares)}
	if len(s.batches) == 0 {
		return nil, errNothing
	}
	for _, share := range shares {
		s.exec = append(s.exec, seconds(share.Exec))
	}
	if s.longest = o.SLO; s.longest <= 0 {
		s.longest = s.horizon()
	}
	if o.load()*s.longest.Seconds() < nobody {
		s.batches = s.batches[:1]
	}
	arrivals, err := o.process(s.longest, s.batches[len(s.batches)-1])
	if err != nil {
		return nil, err
	}
	s.analysis, err = latency.NewAnalysis(arrivals, s.batches[len(s.batches)-1])
	return s, err
}

func seconds(times []time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = t.Seconds()
	}
	return all
}

// horizon is the longest timeout where no SLO bounds it: in which the largest batch
// fills twice over, but no longer than ten of the longest execution.
func (s *search) horizon() time.Duration {
	most := 0.0
	for i, share := range s.shares {
		for _, b := range share.Batches {
			if b >= 1 && b <= len(s.exec[i]) {
				most = max(most, s.exec[i][b-1])
			}
		}
	}
	fill := 2 * float64(s.batches[len(s.batches)-1]) / s.load()
	return time.Duration(min(max(fill, 1e-3), max(1e-3, 10*most)) * float64(time.Second))
}

// all goes through every choice.
func (s *search) all() error {
	for step := range s.Steps + 1 {
		timeout := s.longest * time.Duration(step) / time.Duration(s.Steps)
		for _, b := range s.batches {
			if b == 1 && step > 0 {
				continue // There is nobody to wait for.
			}
			if err := s.with(b, timeout); err != nil {
				return fmt.Errorf("batches of %d, a timeout of %v: %w", b, timeout, err)
			}
		}
	}
	return nil
}

// with tries all shares with a batch size and a timeout.
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
		c.Cost = cost(s.shares[i], s.exec[i], batches, c.MeanBatch)
		if err := s.try(c, w); err != nil {
			return err
		}
	}
	return nil
}

// sensible reports whether a choice is considered: see [Solve].
func (s *search) sensible(share, b int, timeout time.Duration) bool {
	at := s.shares[share]
	if b > len(at.Exec) || !slices.Contains(at.Batches, b) {
		return false
	}
	return b == 1 || s.SLO <= 0 || at.Exec[b-1] <= s.SLO && timeout+at.Exec[0] <= s.SLO
}

// try looks at one choice.
func (s *search) try(c Choice, w *latency.Waits) error {
	if s.Budget <= 0 && !s.keep && s.found && cheaper(c, s.best) > 0 {
		return nil // It is dearer than what meets the SLO.
	}
	d, err := w.Serve(s.exec[c.Share])
	if err != nil {
		return err
	}
	meets := true
	if s.SLO > 0 {
		c.Within = d.CDF(s.SLO.Seconds())
		meets = c.Within >= s.Quantile
	}
	if meets && (!s.anyCheapest || cheaper(c, s.cheapest) < 0) {
		s.cheapest, s.anyCheapest = c, true
	}
	switch {
	case !meets && !s.anyCheapest:
		s.quick(c, false, d)
	case !meets || s.Budget > 0 && c.Cost > s.Budget:
	case s.Budget > 0:
		s.quick(c, true, d)
	default:
		s.take(c)
	}
	return nil
}

// quick deals with a choice of which the percentile has to be known, unless it is
// longer than what was found already.
func (s *search) quick(c Choice, meets bool, d *latency.Distribution) {
	best, known := s.fastest, s.anyFastest
	if meets {
		best, known = s.best, s.found
	}
	if known && !(meets && s.keep) && d.CDF(best.Percentile.Seconds()) < s.Quantile {
		return
	}
	c.Percentile = percentile(d, s.Quantile)
	if meets {
		s.take(c)
		return
	}
	if !known || better(c, best) < 0 {
		s.fastest, s.anyFastest = c, true
	}
}

// take notes a choice that meets the objective.
func (s *search) take(c Choice) {
	if s.keep {
		s.met = append(s.met, c)
	}
	if !s.found || better(c, s.best) < 0 {
		s.best, s.found = c, true
	}
}

// better compares two choices; below 0, a is to be preferred.
func better(a, b Choice) int {
	if d := cmp.Compare(a.Percentile, b.Percentile); d != 0 {
		return d
	}
	return cheaper(a, b)
}

// alike is the part by which costs differ at most that are taken for equal: for a
// thousandth no request should wait for most of its objective.
const alike = 1e-3

// cheaper compares by cost alone, in steps of alike, and for the rest by what is
// simpler.
func cheaper(a, b Choice) int {
	step := func(c Choice) float64 { return math.Round(math.Log(max(c.Cost, math.SmallestNonzeroFloat64)) / alike) }
	return cmp.Or(cmp.Compare(step(a), step(b)), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Timeout, b.Timeout), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Share, b.Share))
}

// cost is what a request costs on average: Σ_k π_k·(S_k·PerSecond + PerCall) / Σ_k k·π_k,
// which is Eq. 1 divided by the requests. With batches of 1 and 2 equally often that
// take 1 and 1.5 s at 2 a second and 1 a call it is (½·3 + ½·4)/1.5 = 2.33.
func cost(at Share, exec, sizes []float64, mean float64) float64 {
	sum := 0.0
	for k, p := range sizes {
		sum += p * (exec[k]*at.Cost + at.Call)
	}
	return sum / mean
}

// percentile is P_i, rounded up to a microsecond.
func percentile(d *latency.Distribution, quantile float64) time.Duration {
	const rounding = 1e-7 // of a microsecond, so that 10 ms stay 10 ms
	return time.Duration(math.Ceil(d.Quantile(quantile)*1e6-rounding)) * time.Microsecond
}

// plan is what the search has found.
func (s *search) plan(runners int) (Plan, error) {
	p := Plan{Best: s.best}
	switch {
	case s.found:
	case s.anyCheapest:
		p.Best = s.cheapest
		p.Short = fmt.Errorf("%w of %v for a request: the cheapest costs %v", ErrBudget, s.Budget, p.Best.Cost)
	case s.anyFastest:
		p.Best = s.fastest
		p.Short = fmt.Errorf("%w of %v at the %v. percentile: the lowest that can be met is %v", ErrSLO, s.SLO, 100*s.Quantile, p.Best.Percentile)
	default:
		return Plan{}, errNothing
	}
	slices.SortStableFunc(s.met, better)
	for _, c := range s.met {
		if len(p.Runners) == runners {
			break
		}
		again := func(o Choice) bool { return o.Share == c.Share && o.Batch == c.Batch }
		if !again(p.Best) && !slices.ContainsFunc(p.Runners, again) {
			p.Runners = append(p.Runners, c)
		}
	}
	return p, s.complete(&p)
}

// complete adds the percentiles that the search did not need.
func (s *search) complete(p *Plan) error {
	fill := func(c *Choice) error {
		if c.Percentile > 0 {
			return nil
		}
		w, err := s.analysis.Waits(c.Batch, c.Timeout.Seconds())
		if err != nil {
			return err
		}
		d, err := w.Serve(s.exec[c.Share])
		if err == nil {
			c.Percentile = percentile(d, s.Quantile)
		}
		return err
	}
	for i := range p.Runners {
		if err := fill(&p.Runners[i]); err != nil {
			return err
		}
	}
	return fill(&p.Best)
}
