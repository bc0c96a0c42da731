package correction

import (
	"math"
	"time"
)

const (
	// enough executions of a class speak for themselves; below, what others
	// have seen fills up to so many, and then the prediction.
	enough = 32
	// few executions, borrowed ones included, are not enough to correct
	// anything; below none, a correction is taken back.
	few, none = 8, 2
	// smaller factors than 1/slack of the one that holds take its place: less
	// would only make plans swing.
	slack = 1.05
	// lowestFactor is the least that a prediction is multiplied by.
	lowestFactor = 0.5
)

// Update draws conclusions from what was observed, and tells whether any factor
// has changed, or what is used beside the engine. It costs about a hundred microseconds; once a second is enough.
//
// A factor goes up once the quantile is above it, but for a small risk, and down
// once its upper bound is clearly below; in between it stays, so that a model
// whose times do not change has times that do not change. The new factor is
// that upper bound: the estimate and the margin that its confidence needs, at
// most the prediction's own margin, or an outlier among few would decide.
//
// Below a whole core a factor is never below 1: an idle instance has quota left
// over that a loaded one has not, so that being faster than the bound shows
// nothing.
func (c *Correction) Update(now time.Time) (changed bool) {
	if now.After(c.now) {
		c.now = now
	}
	if c.relearn() {
		return true
	}
	shares := c.sorted()
	for _, s := range shares {
		s.age(c.now, c.window())
	}
	for _, s := range shares {
		changed = c.update(s) || changed
	}
	return changed
}

// age makes old evidence of what was not added to for long, or since all that the other
// classes of the share count has been replaced.
func (s *share) age(now time.Time, window float64) {
	for i := range s.classes {
		if k := &s.classes[i]; now.Sub(k.seen) > old || k.since > window {
			k.evidence.age()
		}
	}
}

func (c *Correction) update(s *share) (changed bool) {
	for i := range s.classes {
		k := &s.classes[i]
		before := k.factor
		k.factor = c.factor(s, i)
		changed = changed || k.factor != before
	}
	return changed
}

// factor is what a class's prediction is to be multiplied by; 0 for no
// correction.
func (c *Correction) factor(s *share, i int) float64 {
	before := s.classes[i].factor
	switch weight := c.collect(s, i); {
	case weight < none:
		return 0
	case weight < few:
		return before
	}
	low, point, high := c.pool.interval(c.quantile, c.window())
	own := s.caution(i)
	upper := s.clamp(min(high, point*own))
	holds := before
	if holds == 0 {
		holds = own
	}
	if s.clamp(low) > holds || upper*slack < holds {
		return upper
	}
	return before
}

// caution is what the prediction's own margin multiplies it by, for the largest
// batch of a class.
func (s *share) caution(i int) float64 {
	return float64(s.cautious[min(1<<i, len(s.predicted))-1]) / float64(s.longest(i))
}

func (s *share) clamp(factor float64) float64 {
	if s.millicores%1000 != 0 {
		return max(1, min(most, factor))
	}
	return max(lowestFactor, min(most, factor))
}

// collect puts together in pool what speaks for a class, and returns how much of
// that was executed.
func (c *Correction) collect(s *share, i int) (executed float64) {
	clear(c.pool[:])
	k := &s.classes[i]
	c.pool.add(k.counts, k.fade(c.now))
	executed = c.pool.total()
	length := func(from *share, j int) float64 { return float64(from.longest(j)) / float64(s.longest(i)) }
	executed += c.borrow(enough-executed, 0, func(lend func(*evidence, float64)) {
		for j := range s.classes {
			if j != i {
				lend(&s.classes[j].evidence, length(s, j))
			}
		}
	})
	executed += c.borrow(enough-executed, 1, func(lend func(*evidence, float64)) {
		for _, other := range c.sorted() {
			if other == s || other.part() && !s.part() {
				continue
			}
			for j := range other.classes {
				lend(&other.classes[j].evidence, length(other, j))
			}
		}
	})
	if executed < enough {
		c.pool[bucket(1)] += enough - executed
	}
	return executed
}

// part reports whether the share has a quota that may hold it up: what is seen
// there may be the quota's doing, and says nothing of whole cores.
func (s *share) part() bool { return s.millicores%1000 != 0 }

// longest is the prediction for the largest batch of a class, without margin.
func (s *share) longest(i int) time.Duration {
	return max(1, s.predicted[min(1<<i, len(s.predicted))-1])
}

// borrow adds to pool at most so much of what others have seen, of batches that take so
// many times as long. Ratios below floor count as floor.
func (c *Correction) borrow(wanted, floor float64, others func(lend func(of *evidence, length float64))) (borrowed float64) {
	if wanted <= 0 {
		return 0
	}
	var sum counts
	others(func(e *evidence, length float64) {
		sum.lend(e.counts, e.fade(c.now), floor, length)
	})
	total := sum.total()
	if total == 0 {
		return 0
	}
	borrowed = min(wanted, total)
	c.pool.add(&sum, borrowed/total)
	return borrowed
}

// Differ reports whether one list of times tells anything else than another: by
// more than a twentieth somewhere, or of other batch sizes.
func Differ(before, after []time.Duration) bool {
	if len(before) != len(after) {
		return true
	}
	for i := range before {
		if math.Abs(float64(after[i]-before[i])) > 0.05*float64(before[i]) {
			return true
		}
	}
	return false
}
