package correction

import (
	"math"
	"time"
)

// Ratios of measured to predicted times are counted in buckets, which are step wide in the
// logarithm, from 1/8 to 32. Ratios beyond count in the outermost bucket.
const (
	step     = 0.01
	minRatio = 1.0 / 8
	maxRatio = 32.0
	buckets  = 556
)

// lowest is the number of buckets below the one around a ratio of 1.
var lowest = math.Round(-math.Log(minRatio) / step)

// bucket is the index of a ratio above 0.
func bucket(ratio float64) int {
	i := math.Floor(math.Log(ratio)/step+0.5) + lowest
	return int(max(0, min(buckets-1, i)))
}

// edge is the lower end of a bucket, which is the upper end of the one before.
func edge(i int) float64 { return math.Exp((float64(i) - 0.5 - lowest) * step) }

// counts is a weighted histogram of ratios.
type counts [buckets]float64

// add adds share times other, which may be nil.
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

// lend adds share times other, ratios of batches whose predicted time is length times that
// of c's batches. Ratios up to the median are typical of the model and count unchanged.
// The excess over the median is delay, which does not grow with the batch: with a median
// of 1, an execution of 30 ms instead of 1 means that a batch of 10 ms may take 10 + 29 =
// 39 ms, a ratio of 3.9. Ratios below floor count as floor.
func (c *counts) lend(other *counts, share, floor, length float64) {
	if other == nil {
		return
	}
	from := 0
	if floor > minRatio {
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

// top is the bucket at and above which this weight lies.
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

// evidence holds the executions of one class of batches on one share.
type evidence struct {
	// counts is nil without evidence.
	counts *counts
	// seen is the time of the last addition. since is the weight of the evidence that
	// other classes of the share got after it.
	seen  time.Time
	since float64
	// arriving is the number of executions in one call of Observe.
	arriving int
}

// Believed is the maximum factor by which old evidence may show a model to be slower than
// predicted. No prediction of the zoo's models is wrong by more than a half (BENCHMARKS).
// So the machine causes a factor above two: other programs, or instances that are
// starting. It counts in full while it lasts, and not later.
const Believed = 2.0

const (
	// forget is the time after which 1/e of old evidence is left.
	forget = 15 * time.Minute
	// old is the age from which evidence counts as old, like that of an earlier
	// provider; see [evidence.age].
	old = 5 * time.Minute
	// perSecond is the maximum weight of executions per second and class. A thousand
	// within one second are not independent, and a window of them would forget
	// everything from before.
	perSecond = 20.0
)

// fade is the fraction of the evidence's weight that is left at now.
func (e *evidence) fade(now time.Time) float64 {
	return math.Exp(-max(0, now.Sub(e.seen).Seconds()) / forget.Seconds())
}

// age turns the evidence into old evidence: it limits the weight to enough and the ratios
// to [Believed]. So new executions decide the quantile once they fill two windows. Without
// this, a class that was too slow while the machine was disturbed would not be used for a
// long time, and would get no new evidence.
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

// admit makes room for the executions that arrive at now, such that the total weight is at
// most window. It returns the weight of each of them.
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
