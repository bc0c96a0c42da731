package latency

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// Pool is a bounded number of instances behind one buffer.
type Pool struct {
	Arrivals arrival.MAP
	Batch    int
	// Timeout is in s. With a Batch of 1 or a Timeout of 0, each request is a batch of
	// its own.
	Timeout float64
	// Formed[l] is N_l(T), row by row: the probabilities that l further requests come
	// in the timeout, by the phase before and after; l = 0 … Batch − 2.
	Formed [][]float64
	// Service[k-1] is the mean execution time in s of a batch of k. Spread is the
	// standard deviation of the times' logarithm.
	Service []float64
	Spread  float64
	// Instances is c.
	Instances int
	// Horizon in s bounds the waits that Solve must distinguish: it may count a longer
	// wait as one beyond the horizon. 0 means no bound.
	Horizon float64
}

const (
	// MaxSpread is the largest spread and MaxOrder the largest number of phases that
	// Solve accepts; [Buffer.With] plays requests beyond them.
	MaxSpread, MaxOrder = 0.7, 8
	// unseen is the part of the batches that may wait beyond the grid's end.
	unseen = 1e-4
	// maxStates bounds the grid's levels times the phases.
	maxStates = 1600
)

// PoolQueue is how batches wait, on a grid of Step seconds.
type PoolQueue struct {
	Step float64
	// Waits[k-1][g] is the part of the batches that have k requests and wait g steps
	// for an instance. For g = 0 they find one free.
	Waits [][]float64
	// Free is the part of all batches that are full and whose instance was free before
	// their first request came. The other full batches have Filled and AtOnce. Filled[g]
	// is the number of requests per batch that wait g steps, in the buffer and for the
	// instance together. AtOnce is the number of requests per batch that execute as soon
	// as they come.
	Free, AtOnce float64
	Filled       []float64
	// Beyond is the part of the batches that wait beyond the grid's end; it counts as
	// waiting until there.
	Beyond float64
}

// Solve calculates the queue. It fails if a field is not valid. The instances must be
// enough for the load; Solve does not check that.
func (p Pool) Solve() (*PoolQueue, error) {
	if p.Timeout == 0 {
		p.Batch = 1
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	order := p.Arrivals.Order()
	g := p.grid()
	for {
		solved := newWalk(p, g).solve()
		if solved.beyond() <= unseen {
			return solved.queue(), nil
		}
		switch enough := p.Horizon > 0 && float64(g.levels)*g.step >= p.Horizon; {
		case enough:
			return solved.queue(), nil
		case g.step < p.longest()/coarsest: // Waits are longer than the fine grid of many instances assumes.
			g.step *= 2
		case 2*g.levels*order <= maxStates:
			g.levels *= 2
		case g.step < p.longest():
			g.step *= 2
		default:
			return solved.queue(), nil
		}
	}
}

func (p Pool) check() error {
	switch {
	case p.Instances < 1:
		return fmt.Errorf("pool: %d instances: give 1 or more", p.Instances)
	case !(p.Spread >= 0 && p.Spread <= MaxSpread):
		return fmt.Errorf("pool: a spread of %v: give 0 to %v", p.Spread, MaxSpread)
	case p.Arrivals.Order() > MaxOrder:
		return fmt.Errorf("pool: arrivals of %d phases: give at most %d", p.Arrivals.Order(), MaxOrder)
	case len(p.Service) < p.Batch || p.Batch > 1 && len(p.Formed) < p.Batch-1:
		return fmt.Errorf("pool: %d execution times and %d matrices N_l(T) for batches of up to %d: give one time for each size and a matrix for each size but the largest", len(p.Service), len(p.Formed), p.Batch)
	case !(p.longest() > 0):
		return fmt.Errorf("pool: all execution times are 0: give a positive one")
	}
	return nil
}

// longest is the longest mean execution time in s.
func (p Pool) longest() float64 {
	most := 0.0
	for _, s := range p.Service[:p.Batch] {
		most = max(most, s)
	}
	return most
}

// variance is the squared coefficient of variation of a batch's execution times,
// e^{σ²} − 1.
func (p Pool) variance() float64 { return math.Expm1(p.Spread * p.Spread) }

// poolGrid is the grid of the walk: levels of step seconds each.
type poolGrid struct {
	step   float64
	levels int
}

const (
	// coarsest and finest bound the number of steps in the longest execution time. More
	// instances need more steps, because waits are shorter.
	coarsest, finest = 12, 72
	// levels is the initial number of levels, and cells the maximum number of steps in a
	// timeout.
	levels, cells = 128, 512
)

// grid returns the first grid that Solve tries.
func (p Pool) grid() poolGrid {
	parts := min(finest, coarsest*math.Sqrt(float64(p.Instances)))
	g := poolGrid{step: max(p.longest()/parts, p.Timeout/cells)}
	g.levels = max(levels, 3*(p.up(g)+1)/2)
	return g
}

// longTail is how far above its median an execution time may be, in standard deviations
// of its logarithm.
const longTail = 3.5

// up is the maximum number of levels that the walk rises in c batches: the longest
// execution time plus five standard deviations of the mean of c, but at least share.
func (p Pool) up(g poolGrid) int {
	deviation := math.Sqrt(p.variance() / float64(p.Instances))
	return max(p.share(g), int(math.Ceil(p.longest()*(1+5*deviation)/g.step))) + 3
}

// share is the maximum number of levels in a c-th of one batch's execution.
func (p Pool) share(g poolGrid) int {
	return int(math.Ceil(p.longest()/float64(p.Instances)*math.Exp(longTail*p.Spread)/g.step)) + 1
}
