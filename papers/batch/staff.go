package batch

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

const (
	// maxTrials bounds the numbers of instances that are tried altogether. maxFailed
	// bounds the choices of one share and batch size that may fail: others differ more.
	maxTrials, maxFailed = 32, 3
	// maxBusy is the maximum part of the time that instances may be busy. Above it, the
	// waits of batches depend on the smallest burst. idle is the mean number of busy
	// instances below which no batch waits for another.
	maxBusy, idle = 0.95, 1e-4
	// beyond is the horizon of waits, in longest timeouts (SLOs).
	beyond = 2
	// maxSlowdown is how many times the percentile with an instance for each batch the
	// percentile may be, if there is a budget but no SLO.
	maxSlowdown = 1.05
)

// bounded reports whether some share has a bounded number of instances.
func (s *search) bounded() bool {
	return slices.ContainsFunc(s.shares, func(at Share) bool { return at.Instances > 0 })
}

// staffed returns the plan if instances are bounded. It takes the choices that meet the
// objective with an instance for every batch. Of those, in the order of preference, it takes
// the first one that also meets it with the instances that have room.
func (s *search) staffed() (Plan, error) {
	if !s.found {
		p, err := s.plan()
		p.Best.Instances = s.least(p.Best)
		return p, err
	}
	slices.SortStableFunc(s.met, better)
	left, failed := maxTrials, map[[2]int]int{}
	for _, c := range s.met {
		if left <= 0 {
			break
		}
		of := [2]int{c.Share, c.Batch}
		if most := s.shares[c.Share].Instances; failed[of] >= maxFailed || most > 0 && c.Busy > maxBusy*float64(most) {
			continue
		}
		found, ok, err := s.staff(c, &left)
		if err != nil {
			return Plan{}, err
		}
		if ok {
			p := Plan{Best: found, Phases: s.phases()}
			err := s.complete(&p.Best)
			return p, err
		}
		failed[of]++
	}
	if s.below() {
		return Plan{}, ErrBelow
	}
	return s.crowded()
}

// Ready is the maximum number of instances that are worth being held ready if busy of them are
// busy on average: twice as many, plus three. If more would be needed, bursts last so long that
// instances can be started for them.
func Ready(busy float64) int { return 2*int(math.Ceil(busy)) + 3 }

// crowded returns the plan if no choice has enough instances. It takes the first choice that
// has room for as many as are worth being held ready. Otherwise it takes the one whose
// instances are least busy.
func (s *search) crowded() (Plan, error) {
	busy := func(c Choice) float64 {
		if most := s.shares[c.Share].Instances; most > 0 {
			return c.Busy / float64(most)
		}
		return 0
	}
	best := s.met[0]
	for _, c := range s.met {
		if Ready(c.Busy) <= s.shares[c.Share].Instances {
			best = c
			break
		}
		if busy(c) < busy(best) {
			best = c
		}
	}
	best.Instances = s.least(best)
	p := Plan{Best: best, Phases: s.phases()}
	p.Short = fmt.Errorf("%w: %.3g of the %d instances with room would be busy on average", ErrRoom, best.Busy, s.shares[best.Share].Instances)
	err := s.complete(&p.Best)
	return p, err
}

// least is the number of instances of a choice by its load alone.
func (s *search) least(c Choice) int {
	most := s.shares[c.Share].Instances
	if most == 0 {
		return 0
	}
	return min(most, int(c.Busy/maxBusy)+1)
}

// staff finds the least number of instances with which a choice meets the objective. It
// increases the number in steps that double, then searches between the last two. Each number
// takes one of the trials left. ok is false if instances or trials are not enough.
func (s *search) staff(c Choice, left *int) (found Choice, ok bool, err error) {
	most := s.shares[c.Share].Instances
	if most == 0 {
		return c, true, nil
	}
	w, err := s.analysis.Waits(c.Batch, c.Timeout.Seconds())
	if err != nil {
		return c, false, err
	}
	// Either no batch meets another, or there are so many that chance averages out.
	if c.Busy < idle || s.arrivals.Rate() < s.Load()*(1-1e-9) {
		c.Instances = s.least(c)
		return c, true, nil
	}
	target := s.SLO.Seconds()
	if s.SLO <= 0 {
		target = maxSlowdown * s.distribution(c, w).Quantile(s.Quantile)
	}
	meets := func(n int) (bool, error) {
		*left--
		tried := c
		tried.Instances = n
		d, err := s.among(tried, w)
		if err != nil || d.CDF(target) < s.Quantile {
			return false, err
		}
		c.Instances, c.Percentile = n, percentile(d, s.Quantile)
		if s.SLO > 0 {
			c.Within = d.CDF(target)
		}
		return true, nil
	}
	return s.search(most, left, meets, &c)
}

// among returns the distribution of a choice's latencies with its number of instances.
func (s *search) among(c Choice, w *latency.Waits) (*latency.Distribution, error) {
	if c.Instances == 0 {
		return s.distribution(c, w), nil
	}
	r := latency.Reality{Spread: min(s.Spread, latency.MaxSpread), Instances: c.Instances, Horizon: beyond * s.longest.Seconds()}
	return w.Among(s.arrivals, s.exec[c.Share], r)
}

// search finds the least number up to most that meets, from the number that the load alone
// needs. With recorded requests, it begins at the number that these need. If then even as many
// as are worth being held ready do not meet, by the arrivals' process, the search ends: the
// process does not fit the record.
func (s *search) search(most int, left *int, meets func(int) (bool, error), c *Choice) (Choice, bool, error) {
	below, step := int(math.Floor(c.Busy/maxBusy)), 1
	guess := s.guess(*c, below+1)
	if guess > 0 {
		below, most = guess-1, min(most, max(guess, Ready(c.Busy)))
	}
	for {
		n := min(below+step, most)
		if n <= below || *left <= 0 {
			return *c, false, nil
		}
		ok, err := meets(n)
		if err != nil {
			return *c, false, err
		}
		if ok {
			return s.between(below, n, left, meets, c)
		}
		if below, step = n, 2*step; guess > 0 {
			step = most
		}
	}
}

// between finds the least number that meets, above below and up to above, which meets.
func (s *search) between(below, above int, left *int, meets func(int) (bool, error), c *Choice) (Choice, bool, error) {
	for above-below > 1 && *left > 0 {
		middle := (below + above) / 2
		ok, err := meets(middle)
		if err != nil {
			return *c, false, err
		}
		if ok {
			above = middle
		} else {
			below = middle
		}
	}
	return *c, true, nil
}
