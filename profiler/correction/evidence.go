package correction

import (
	"math"
	"time"
)

// Ratios of measured to predicted times are counted in buckets that are step
// wide in the logarithm, from 1/8 to 32; what is beyond counts in the outermost.
const (
	step    = 0.01
	least   = 1.0 / 8
	most    = 32.0
	buckets = 556
)

// lowest is the number of buckets below the one around a ratio of 1.
var lowest = math.Round(-math.Log(least) / step)

// bucket is the index of a ratio above 0.
func bucket(ratio float64) int {
	i := math.Floor(math.Log(ratio)/step+0.5) + lowest
	return int(max(0, min(buckets-1, i)))
}

// edge is the lower end of a bucket, and the upper end of the one before.
func edge(i int) float64 { return math.Exp((float64(i) - 0.5 - lowest) * step) }

// counts is a weighted histogram of ratios.
type counts [buckets]float64

// add counts the part share of other, which may be nil; ratios below floor count
// as floor.
func (c *counts) add(other *counts, share, floor float64) {
	if other == nil {
		return
	}
	from := 0
	if floor > least {
		from = bucket(floor)
	}
	for i, w := range other {
		if w > 0 {
			c[max(i, from)] += w * share
		}
	}
}

func (c *counts) total() float64 {
	sum := 0.0
	for _, w := range c {
		sum += w
	}
	return sum
}

// top is the bucket at and above which weight lies.
func (c *counts) top(weight float64) int {
	above, last := 0.0, buckets-1
	for i := buckets - 1; i >= 0; i-- {
		if c[i] == 0 {
			continue
		}
		if last, above = i, above+c[i]; above >= weight {
			break
		}
	}
	return last
}

// evidence is what was seen of one class of batches on one share.
type evidence struct {
	// counts is nil as long as there is none.
	counts *counts
	// seen is when it was last added to.
	seen time.Time
	// arriving counts what one call of Observe brings.
	arriving int
}

const (
	// forget is the time after which 1/e of old evidence is left.
	forget = 15 * time.Minute
	// perSecond is the most that executions count together per second and
	// class: a thousand within one second are not a thousand independent ones,
	// and a window of them would forget what was a second ago.
	perSecond = 20.0
)

// fade is what is left at now of evidence as it was last counted.
func (e *evidence) fade(now time.Time) float64 {
	return math.Exp(-max(0, now.Sub(e.seen).Seconds()) / forget.Seconds())
}

// admit makes room for what arrives at now, so that all together weighs no more
// than window, and returns what each of them is to weigh.
func (e *evidence) admit(now time.Time, window float64) float64 {
	passed, left := 1.0, 1.0
	if e.counts == nil {
		e.counts = new(counts)
	} else {
		passed = min(1, max(0, now.Sub(e.seen).Seconds()))
		left = e.fade(now)
	}
	n := float64(e.arriving)
	weight := min(n, max(1, perSecond*passed))
	left *= max(0, 1-weight/window)
	for i := range e.counts {
		e.counts[i] *= left
	}
	e.seen, e.arriving = now, 0
	return weight / n
}
