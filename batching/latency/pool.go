package latency

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

// Pool is the instances with the buffer before them.
type Pool struct {
	Arrivals arrival.MAP
	Batch    int
	// Timeout is in s. With a Batch of 1, or a Timeout of 0, each request is a batch.
	Timeout float64
	// Formed[l] is N_l(T), row by row: the probabilities that l further requests come
	// in the timeout, by the phase before and after; l = 0 … Batch − 2.
	Formed [][]float64
	// Service[k-1] is the mean execution time in s of a batch of k, Spread the standard
	// deviation of the times' logarithm.
	Service []float64
	Spread  float64
	// Instances is c.
	Instances int
	// Horizon is from how many s on waits need not be told apart, 0 if they always are:
	// batches that would wait longer are then as if they waited no longer.
	Horizon float64
}

const (
	// MaxSpread is the largest spread, MaxOrder the most phases: with more, whoever
	// asks has to look elsewhere.
	MaxSpread, MaxOrder = 0.7, 8
	// unseen is the part of the batches that may wait for longer than the grid goes.
	unseen = 1e-4
	// maxStates bounds the grid's levels times the phases.
	maxStates = 1600
)

// PoolQueue is how batches wait, on a grid of Step seconds.
type PoolQueue struct {
	Step float64
	// Waits[k-1][g] is the part of the batches that have k requests and wait g steps
	// for an instance; g = 0: that find one free.
	Waits [][]float64
	// Of the full batches, Free is the part of all batches whose instance was free
	// before their first request came, so that it plays no part. For the others, Filled[g]
	// is how many requests per batch wait g steps, in the buffer and for the instance
	// together, and AtOnce how many are executed as soon as they come.
	Free, AtOnce float64
	Filled       []float64
	// Beyond is the part of the batches that wait longer than the grid goes; it counts
	// as waiting to the grid's end.
	Beyond float64
}

// Solve finds the queue. It fails if the pool is of no use, or if instances are too few
// for what is asked of them.
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
		case g.step < p.longest()/coarsest: // Queues are longer than c instances' chance.
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
		return fmt.Errorf("pool: arrivals of %d phases: %d are the most", p.Arrivals.Order(), MaxOrder)
	case len(p.Service) < p.Batch || p.Batch > 1 && len(p.Formed) < p.Batch-1:
		return fmt.Errorf("pool: %d times and %d sizes for batches of %d", len(p.Service), len(p.Formed), p.Batch)
	case !(p.longest() > 0):
		return fmt.Errorf("pool: batches take no time")
	}
	return nil
}

// longest is the longest mean time.
func (p Pool) longest() float64 {
	most := 0.0
	for _, s := range p.Service[:p.Batch] {
		most = max(most, s)
	}
	return most
}

// variance is the squared coefficient of variation of a batch's times, e^{σ²} − 1.
func (p Pool) variance() float64 { return math.Expm1(p.Spread * p.Spread) }

// poolGrid is where the walk is looked at: levels of step seconds each.
type poolGrid struct {
	step   float64
	levels int
}

const (
	// finest and coarsest are how many steps the longest time has: more with more
	// instances, because waits are then shorter.
	coarsest, finest = 12, 72
	// levels is how many there are at first, and cells the most steps in a timeout.
	levels, cells = 128, 512
)

// poolGrid is the first one tried.
func (p Pool) grid() poolGrid {
	parts := min(finest, coarsest*math.Sqrt(float64(p.Instances)))
	g := poolGrid{step: max(p.longest()/parts, p.Timeout/cells)}
	g.levels = max(levels, 3*(p.up(g)+1)/2)
	return g
}

// longTail is how many standard deviations of its logarithm an execution time may be
// above its median.
const longTail = 3.5

// up is how many levels the walk rises at most in c batches: the longest time, and five
// standard deviations of the mean of c, but no less than one batch's part; share is the
// latter.
func (p Pool) up(g poolGrid) int {
	deviation := math.Sqrt(p.variance() / float64(p.Instances))
	return max(p.share(g), int(math.Ceil(p.longest()*(1+5*deviation)/g.step))) + 3
}

func (p Pool) share(g poolGrid) int {
	return int(math.Ceil(p.longest()/float64(p.Instances)*math.Exp(longTail*p.Spread)/g.step)) + 1
}
