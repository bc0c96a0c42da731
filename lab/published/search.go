package published

import (
	"fmt"
	"slices"
	"time"

	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// The timeouts that the release of BATCH's authors tries (solver.py); the paper names none.
const (
	publishedStep    = 10 * time.Millisecond
	publishedLongest = 490 * time.Millisecond
)

// Optimise is BATCH's optimiser as its authors run it: an exhaustive search of all shares, batch
// sizes and timeouts (§IV) with the latencies of [Model], for the least cost within
// the SLO (Eq. 2), or with a budget the lowest percentile within it (Eq. 3). It takes the
// arrivals, the SLO, the quantile and the budget of the objective. There is an instance for
// every batch, and execution times have no spread. Compare [paper.Solve], which has the exact
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
// Optimise fails if the arrivals are not valid or there is nothing to choose from.
func Optimise(o paper.Objective, shares []paper.Share) (paper.Choice, error) {
	process, batches, _, err := o.Process(shares)
	if err != nil {
		return paper.Choice{}, err
	}
	analysis, err := latency.NewAnalysis(process, batches[len(batches)-1])
	if err != nil {
		return paper.Choice{}, err
	}
	p := &search{Objective: o, shares: shares}
	p.Quantile = min(max(o.Quantile, 0), 1-1e-9)
	for _, share := range shares {
		p.exec = append(p.exec, seconds(share.Exec))
	}
	for _, b := range batches {
		first, last := publishedStep, publishedLongest
		if b == 1 {
			first, last = 0, 0
		}
		for timeout := first; timeout <= last; timeout += publishedStep {
			model, err := NewModel(process, analysis, b, timeout.Seconds())
			if err != nil {
				return paper.Choice{}, fmt.Errorf("batches of %d, a timeout of %v: %w", b, timeout, err)
			}
			p.with(model, b, timeout)
		}
	}
	return p.best, nil
}

// search is one search of Optimise.
type search struct {
	paper.Objective
	shares []paper.Share
	// exec has the shares' times in s.
	exec [][]float64
	// best is the best choice so far, if any, and good whether it meets the goal.
	best      paper.Choice
	any, good bool
}

// with tries a batch size and timeout on all shares.
func (p *search) with(model *Model, b int, timeout time.Duration) {
	for i, at := range p.shares {
		if b > len(at.Exec) || !slices.Contains(at.Batches, b) {
			continue
		}
		c := paper.Choice{Share: i, Batch: b, Timeout: timeout, MeanBatch: model.MeanBatch()}
		c.Cost = paper.Cost(at, p.exec[i], model.Batches(), c.MeanBatch)
		for k, part := range model.Batches() {
			c.Busy += p.Load() / c.MeanBatch * part * p.exec[i][k]
		}
		if p.SLO > 0 {
			c.Within = model.Within(p.exec[i], p.SLO.Seconds())
		}
		meets := (p.SLO <= 0 || c.Within >= p.Quantile) && (p.Budget <= 0 || c.Cost <= p.Budget)
		if p.any && p.good && (!meets || p.Budget <= 0 && !p.before(c)) {
			continue
		}
		c.Percentile = time.Duration(model.Quantile(p.exec[i], p.Quantile) * float64(time.Second))
		if !p.any || meets && !p.good || meets == p.good && p.better(c, meets) {
			p.best, p.any, p.good = c, true, meets
		}
	}
}

// better reports whether a choice is better than the best one, which meets the goal as it does.
func (p *search) better(c paper.Choice, meets bool) bool {
	if meets == (p.Budget > 0) { // The lowest percentile counts.
		return c.Percentile < p.best.Percentile || c.Percentile == p.best.Percentile && p.before(c)
	}
	return p.before(c)
}

// before reports whether a choice costs less than the best one, or as much and comes before it.
func (p *search) before(c paper.Choice) bool {
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

func seconds(times []time.Duration) []float64 {
	all := make([]float64, len(times))
	for i, t := range times {
		all[i] = t.Seconds()
	}
	return all
}
