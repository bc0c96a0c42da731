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

// add counts the part share of other, which may be nil.
func (c *counts) add(other *counts, share float64) {
	if other == nil {
		return
	}
	for i, w := range other {
		if w > 0 {
			c[i] += w * share
		}
	}
}

// lend counts the part share of other, which are ratios of batches that were predicted to
// take length times as long as those that are spoken of here. What is typical, up to the
// median, is the model's and counts as it is; what exceeds it is delay, which lasts no
// longer because a batch does: with a median of 1, 30 ms in place of 1 tell of a batch of
// 10 ms that it may take 10 + 29 = 39 ms, a ratio of 3.9. Ratios below floor count as
// floor.
func (c *counts) lend(other *counts, share, floor, length float64) {
	if other == nil {
		return
	}
	from := 0
	if floor > least {
		from = bucket(floor)
	}
	middle := other.top(other.total() / 2)
	length = min(1, length)
	for i, w := range other {
		if w == 0 {
			continue
		}
		if i > middle && length < 1 {
			typical := edge(middle) * math.Exp(step/2)
			i = bucket(typical + (edge(i)*math.Exp(step/2)-typical)*length)
		}
		c[max(i, from)] += w * share
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
	// seen is when it was last added to, since what other classes of the share were
	// given from then on.
	seen  time.Time
	since float64
	// arriving counts what one call of Observe brings.
	arriving int
}

// Believed is by how much a model may be slower than was predicted. No prediction of the
// zoo's models is off by more than a half (BENCHMARKS), so that what exceeds two is the
// machine's doing: other programs, or instances that are being started. While it lasts it
// counts in full; later it tells nothing.
const Believed = 2.0

const (
	// forget is the time after which 1/e of old evidence is left.
	forget = 15 * time.Minute
	// old is the age from which on evidence counts no more than what an earlier
	// provider has seen, see [evidence.age].
	old = 5 * time.Minute
	// perSecond is the most that executions count together per second and
	// class: a thousand within one second are not a thousand independent ones,
	// and a window of them would forget what was a second ago.
	perSecond = 20.0
)

// fade is what is left at now of evidence as it was last counted.
func (e *evidence) fade(now time.Time) float64 {
	return math.Exp(-max(0, now.Sub(e.seen).Seconds()) / forget.Seconds())
}

// age makes old evidence of what there is: it weighs no more than what speaks for
// itself, so that the quantile is that of new executions once these have filled two
// windows, and its ratios are not above [Believed]. A class that was too slow to be used while the machine was disturbed would
// else not be used long after: nothing new would be seen of it.
func (e *evidence) age() {
	if e.counts == nil {
		return
	}
	last := bucket(Believed)
	for i := last + 1; i < buckets; i++ {
		e.counts[last] += e.counts[i]
		e.counts[i] = 0
	}
	if total := e.counts.total(); total > enough {
		for i := range e.counts {
			e.counts[i] *= enough / total
		}
	}
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
