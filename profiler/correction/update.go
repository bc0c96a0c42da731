package correction

import (
	"math"
	"time"
)

const (
	// enough is the weight of executions that a class needs. Below it borrowed
	// executions fill up to enough, and then the prediction.
	enough = 32
	// few is the minimum weight, with borrowed executions, to change a correction.
	// Below none a correction is dropped.
	few, none = 8, 2
	// slack limits changes: a factor goes down only if the new one is below 1/slack
	// of it. Smaller changes would only make plans swing.
	slack = 1.05
	// lowestFactor is the minimum of a factor.
	lowestFactor = 0.5
)

// Update calculates the factors from the observations. It reports whether any factor, the
// size of rows that is planned for, or the time outside the engine has changed. It takes about a hundred microseconds; once a
// second is enough.
//
// A factor goes up when the quantile is above it, except for a small risk. It goes down
// when the quantile's upper bound is clearly below it. In between it stays, so a model
// whose times do not change gets constant times. The new factor is that upper bound: the
// estimate and the margin that its confidence needs. The margin is at most the
// prediction's own, because otherwise an outlier among few executions would decide.
//
// On a share with a part of a core a factor is never below 1. An idle instance has unused
// quota that a loaded one lacks, so a time below the bound shows nothing.
func (c *Correction) Update(now time.Time) (changed bool) {
	if now.After(c.now) {
		c.now = now
	}
	resized := c.resize()
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
	return changed || resized
}

// age turns the evidence of a class into old evidence if it got none for a long time, or
// if the share's other classes have since got a full window.
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

// factor is the new factor of a class, 0 for no correction.
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

// caution is the factor of the prediction's own margin, for the largest batch of a class.
func (s *share) caution(i int) float64 {
	return float64(s.cautious[min(1<<i, len(s.predicted))-1]) / float64(s.longest(i))
}

func (s *share) clamp(factor float64) float64 {
	if s.part() {
		return max(1, min(maxRatio, factor))
	}
	return max(lowestFactor, min(maxRatio, factor))
}

// collect combines the evidence for a class in pool, and returns the weight of the
// executions in it.
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
			if other == s || other.part() && !s.part() || (other.GPU > 0) != (s.GPU > 0) {
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

// part reports whether the share has a quota that may pause an instance. The quota may
// then cause its times, so they say nothing about whole cores. The quota beside a share of a
// GPU is one that pauses nothing.
func (s *share) part() bool { return s.GPU == 0 && s.CPU%1000 != 0 }

// longest is the prediction for the largest batch of a class, without margin.
func (s *share) longest(i int) time.Duration {
	return max(1, s.predicted[min(1<<i, len(s.predicted))-1])
}

// borrow adds to pool at most the weight wanted of other evidence. others calls lend for
// each one, with length, the predicted time of its batches over that of this class.
// Ratios below floor count as floor.
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

// Differ reports whether two lists of times differ: by more than a twentieth for some
// batch size, or in their length.
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
