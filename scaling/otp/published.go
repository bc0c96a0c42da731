package otp

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/batching/latency"
)

// The timeouts that the release of BATCH's authors tries (solver.py); the paper names none.
const (
	publishedStep    = 10 * time.Millisecond
	publishedLongest = 490 * time.Millisecond
)

// Published is BATCH's optimiser as its authors run it: an exhaustive search of all shares, batch
// sizes and timeouts (§IV) with the latencies of [latency.Published], for the least cost within
// the SLO (Eq. 2), or with a budget the lowest percentile within it (Eq. 3). It takes the
// arrivals, the SLO, the quantile and the budget of the objective. There is an instance for
// every batch, and execution times have no spread. Compare [Solve], which has the exact
// latencies, a bounded number of instances and spread.
//
// The paper is silent on these points:
//
//   - the timeouts: 10, 20, … 490 ms as in the release. Batches of one do not wait.
//   - the batch sizes: those of the shares. The release tries 20 only.
//   - the cost of a request: Eq. 1 over the mean number of requests in a batch. The release
//     takes the batch at the quantile, alone.
//   - equal costs: the first of the search, which goes through shares, timeouts and batch sizes.
//   - nothing meets the goal: the lowest percentile, or with a budget the lowest cost. The
//     release gives up.
//
// Published fails if the arrivals are not valid or there is nothing to choose from.
func Published(o Objective, shares []Share) (Choice, error) {
	s, err := newSearch(Objective{Arrivals: o.Arrivals, Rate: o.Rate, SLO: o.SLO, Quantile: o.Quantile}, shares)
	if err != nil {
		return Choice{}, err
	}
	analysis, err := latency.NewAnalysis(s.arrivals, s.batches[len(s.batches)-1])
	if err != nil {
		return Choice{}, err
	}
	p := &publishedSearch{search: s, budget: o.Budget}
	for _, b := range s.batches {
		first, last := publishedStep, publishedLongest
		if b == 1 {
			first, last = 0, 0
		}
		for timeout := first; timeout <= last; timeout += publishedStep {
			model, err := analysis.Published(b, timeout.Seconds())
			if err != nil {
				return Choice{}, fmt.Errorf("batches of %d, a timeout of %v: %w", b, timeout, err)
			}
			p.with(model, b, timeout)
		}
	}
	if !p.any {
		return Choice{}, errNothing
	}
	return p.best, nil
}

// publishedSearch is one search of Published.
type publishedSearch struct {
	*search
	budget float64
	// best is the best choice so far, if any, and good whether it meets the goal.
	best      Choice
	any, good bool
}

// with tries a batch size and timeout on all shares.
func (p *publishedSearch) with(model *latency.Published, b int, timeout time.Duration) {
	for i, at := range p.shares {
		if !at.offers(b) {
			continue
		}
		c := Choice{Share: i, Batch: b, Timeout: timeout, MeanBatch: model.MeanBatch()}
		c.Cost = cost(at, p.exec[i], model.Batches(), c.MeanBatch)
		for k, part := range model.Batches() {
			c.Busy += p.load() / c.MeanBatch * part * p.exec[i][k]
		}
		if p.SLO > 0 {
			c.Within = model.Within(p.exec[i], p.SLO.Seconds())
		}
		meets := (p.SLO <= 0 || c.Within >= p.Quantile) && (p.budget <= 0 || c.Cost <= p.budget)
		if p.any && p.good && (!meets || p.budget <= 0 && !p.before(c)) {
			continue
		}
		c.Percentile = time.Duration(model.Quantile(p.exec[i], p.Quantile) * float64(time.Second))
		if !p.any || meets && !p.good || meets == p.good && p.better(c, meets) {
			p.best, p.any, p.good = c, true, meets
		}
	}
}

// better reports whether a choice is better than the best one, which meets the goal as it does.
func (p *publishedSearch) better(c Choice, meets bool) bool {
	if meets == (p.budget > 0) { // The lowest percentile counts.
		return c.Percentile < p.best.Percentile || c.Percentile == p.best.Percentile && p.before(c)
	}
	return p.before(c)
}

// before reports whether a choice costs less than the best one, or as much and comes before it.
func (p *publishedSearch) before(c Choice) bool {
	b := p.best
	switch {
	case c.Cost != b.Cost:
		return c.Cost < b.Cost
	case c.Share != b.Share:
		return c.Share < b.Share
	case c.Timeout != b.Timeout:
		return c.Timeout < b.Timeout
	}
	return c.Batch < b.Batch
}
