package correction

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// beside learns the CPU time in µs that an instance uses outside the engine, f per batch
// and r per request, from batches of different sizes. f and r minimise
//
//	Σ w·(y − f − r·b)² + trust·(f − usual)²
//
// over batches of b requests that took y. Later batches have a larger weight w. While all
// batches have the same size, usual separates f and r: if batches of one request take
// 350 µs, 50 µs are for the batch and 300 µs for the request.
type beside struct {
	seen                                  int
	weight, sizes, squares, time, product float64
}

const (
	// usual is the default time per batch in µs, trust its weight in batches.
	usual, trust = 50, 4
	// recent is the number of batches after which 1/e of a batch's weight is left,
	// sure the minimum number of batches to learn from.
	recent, sure = 500, 8
	// noticed is the part of a batch's time by which a learned value must differ
	// from the one in use to replace it.
	noticed = 0.05
)

// observe adds a batch.
func (l *beside) observe(requests int, cpu time.Duration) {
	const kept = 1 - 1.0/recent
	l.seen++
	b, y := float64(requests), float64(cpu)/float64(time.Microsecond)
	l.weight, l.sizes, l.squares = l.weight*kept+1, l.sizes*kept+b, l.squares*kept+b*b
	l.time, l.product = l.time*kept+y, l.product*kept+y*b
}

// learned is the result of the batches; false if they are too few.
func (l *beside) learned() (profiler.Beside, bool) {
	if l.seen < sure {
		return profiler.Beside{}, false
	}
	weight, time := l.weight+trust, l.time+trust*usual
	det := weight*l.squares - l.sizes*l.sizes // It is positive because trust is.
	f, r := (l.squares*time-l.sizes*l.product)/det, (weight*l.product-l.sizes*time)/det
	switch {
	case f < 0:
		f, r = 0, l.product/l.squares
	case r < 0:
		f, r = time/weight, 0
	}
	return profiler.Beside{Batch: f, Request: r}, true
}

// expected is the assumed cost of payloads before any request. It assumes JSON, the most
// expensive format, because too low a cost would plan too few instances.
func expected(p *profiler.Profile) profiler.Beside {
	if p.Payloads == nil {
		return p.Beside
	}
	return profiler.Beside{Batch: usual, Request: p.Payloads.JSON}
}

// relearn updates the prediction if the learned time outside the engine makes a
// difference, and reports whether it did. The evidence then begins again, because it is
// relative to the prediction.
func (c *Correction) relearn() bool {
	next, ok := c.beside.learned()
	if !ok || !c.differs(next) {
		return false
	}
	c.setBeside(next)
	return true
}

// differs reports whether next makes a difference for the smallest or the largest batch.
func (c *Correction) differs(next profiler.Beside) bool {
	s := c.share(profiler.Share{CPU: 1000})
	if gpus := c.profile.DeviceShares(); len(s.predicted) == 0 && len(gpus) > 0 {
		s = c.share(profiler.Share{CPU: 1000, GPU: gpus[len(gpus)-1]})
	}
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

// setBeside makes a new prediction with this time outside the engine, and drops the
// evidence.
func (c *Correction) setBeside(next profiler.Beside) {
	p := *c.profile
	p.Beside = next
	c.bare = bare(&p)
	p.Beside = profiler.Beside{Batch: next.Batch * (1 + profiler.Margin), Request: next.Request * (1 + profiler.Margin)}
	c.profile = &p
	clear(c.shares)
}
