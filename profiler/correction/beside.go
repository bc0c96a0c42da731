package correction

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// beside learns what an instance uses beside the engine, f for a batch and r for each
// request in it, from batches of different sizes: the f and r with the least
//
//	Σ w·(y − f − r·b)² + trust·(f − usual)²
//
// over batches of b requests that took y, of which later ones weigh more. As long as all
// batches have the same size, usual tells f and r apart: batches of one request that take
// 350 µs are 50 µs for the batch and 300 µs for the request.
type beside struct {
	seen                                  int
	weight, sizes, squares, time, product float64
}

const (
	// usual is what a batch costs in µs if it is not known, trust the batches that this
	// is worth.
	usual, trust = 50, 4
	// recent is after how many batches 1/e of an old one's weight is left, sure how many
	// are enough.
	recent, sure = 500, 8
	// noticed is the part of a batch's time by which what was learned must differ from
	// what is reckoned with.
	noticed = 0.05
)

// observe takes in a batch.
func (l *beside) observe(requests int, cpu time.Duration) {
	const kept = 1 - 1.0/recent
	l.seen++
	b, y := float64(requests), float64(cpu)/float64(time.Microsecond)
	l.weight, l.sizes, l.squares = l.weight*kept+1, l.sizes*kept+b, l.squares*kept+b*b
	l.time, l.product = l.time*kept+y, l.product*kept+y*b
}

// learned is what the batches show; false if they are too few.
func (l *beside) learned() (profiler.Beside, bool) {
	if l.seen < sure {
		return profiler.Beside{}, false
	}
	weight, time := l.weight+trust, l.time+trust*usual
	det := weight*l.squares - l.sizes*l.sizes // Positive, as trust is.
	f, r := (l.squares*time-l.sizes*l.product)/det, (weight*l.product-l.sizes*time)/det
	switch {
	case f < 0:
		f, r = 0, l.product/l.squares
	case r < 0:
		f, r = time/weight, 0
	}
	return profiler.Beside{Batch: f, Request: r}, true
}

// expected is what clients' payloads are taken to cost before they have sent any: JSON,
// which is the most, or less than what comes would be planned for.
func expected(p *profiler.Profile) profiler.Beside {
	if p.Payloads == nil {
		return p.Beside
	}
	return profiler.Beside{Batch: usual, Request: p.Payloads.JSON}
}

// relearn has the prediction follow what was learned beside the engine, where that makes a
// difference, and tells whether it does. Evidence is by the prediction, and begins anew.
func (c *Correction) relearn() bool {
	next, ok := c.beside.learned()
	if !ok || !c.differs(next) {
		return false
	}
	c.reckon(next)
	return true
}

// differs reports whether it makes a difference to the smallest or the largest batch.
func (c *Correction) differs(next profiler.Beside) bool {
	s := c.share(1000)
	for _, b := range []int{1, len(s.predicted)} {
		if b < 1 || b > len(s.predicted) {
			continue
		}
		now := c.bare.Beside
		by := math.Abs(next.Batch - now.Batch + float64(b)*(next.Request-now.Request))
		if by > noticed*float64(s.predicted[b-1])/float64(time.Microsecond) {
			return true
		}
	}
	return false
}

// reckon begins with a prediction that has so much beside the engine.
func (c *Correction) reckon(next profiler.Beside) {
	p := *c.profile
	p.Beside = next
	c.bare = bare(&p)
	p.Beside = profiler.Beside{Batch: next.Batch * (1 + profiler.Margin), Request: next.Request * (1 + profiler.Margin)}
	c.profile = &p
	clear(c.shares)
}
