package otp

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/batching/latency"
)

const (
	// trials is how many numbers of instances are tried altogether, and patience how
	// many choices of one share and batch size: others are more different.
	trials, patience = 32, 3
	// busiest is which part of the time instances may be busy: beyond, how long batches
	// wait hangs on the least burst.
	// and idle below which nobody waits for anybody.
	busiest, idle = 0.95, 1e-4
	// beyond is how many times the longest timeout, the SLO, waits are looked at.
	beyond = 2
	// asFast is how much longer than with an instance for each batch a percentile may
	// be where only a budget says how fast is fast enough.
	asFast = 1.05
)

// bounded reports whether some share has only so many instances.
func (s *search) bounded() bool {
	return slices.ContainsFunc(s.shares, func(at Share) bool { return at.Instances > 0 })
}

// staffed is the plan where instances are bounded: of the choices that meet the
// objective with an instance for every batch, the first in the order of preference that
// do with no more than there are.
func (s *search) staffed(runners int) (Plan, error) {
	if !s.found {
		p, err := s.plan(0)
		p.Best.Instances = s.least(p.Best)
		return p, err
	}
	slices.SortStableFunc(s.met, better)
	var staffed []Choice
	left, failed := trials, map[[2]int]int{}
	for _, c := range s.met {
		if left <= 0 || len(staffed) > runners {
			break
		}
		of := [2]int{c.Share, c.Batch}
		again := slices.ContainsFunc(staffed, func(o Choice) bool { return o.Share == c.Share && o.Batch == c.Batch })
		if most := s.shares[c.Share].Instances; again || failed[of] >= patience || most > 0 && c.Busy > busiest*float64(most) {
			continue
		}
		found, ok, err := s.staff(c, &left)
		if err != nil {
			return Plan{}, err
		}
		if ok {
			staffed = append(staffed, found)
		} else {
			failed[of]++
		}
	}
	if len(staffed) == 0 && s.below() {
		return Plan{}, ErrBelow
	}
	if len(staffed) == 0 {
		return s.crowded()
	}
	p := Plan{Best: staffed[0], Runners: staffed[1:], Phases: s.phases(), search: s}
	err := s.complete(&p)
	return p, err
}

// Ready is the most instances that are worth being held ready where so many are busy on
// average: twice as many, and three. Where more would be needed, bursts last so long that
// instances can be started for them.
func Ready(busy float64) int { return 2*int(math.Ceil(busy)) + 3 }

// crowded is the plan where nothing has enough instances: the first choice of which as
// many can be had as are worth having, or else that has the most to spare.
func (s *search) crowded() (Plan, error) {
	spare := func(c Choice) float64 {
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
		if spare(c) < spare(best) {
			best = c
		}
	}
	best.Instances = s.least(best)
	p := Plan{Best: best, Phases: s.phases(), search: s}
	p.Short = fmt.Errorf("%w: %s instances are busy of %d that there is room for", ErrRoom, short(best.Busy), s.shares[best.Share].Instances)
	err := s.complete(&p)
	return p, err
}

// short is a number with three digits.
func short(x float64) string { return fmt.Sprintf("%.3g", x) }

// least is how many instances a choice takes that was not looked at more closely.
func (s *search) least(c Choice) int {
	most := s.shares[c.Share].Instances
	if most == 0 {
		return 0
	}
	return min(most, int(c.Busy/busiest)+1)
}

// staff finds the least number of instances with which a choice meets the objective:
// first one more each time by twice as many, then between the last two. Each number
// takes one of those left; ok is false where there are not enough instances, or tries.
func (s *search) staff(c Choice, left *int) (found Choice, ok bool, err error) {
	most := s.shares[c.Share].Instances
	if most == 0 {
		return c, true, nil
	}
	w, err := s.analysis.Waits(c.Batch, c.Timeout.Seconds())
	if err != nil {
		return c, false, err
	}
	if c.Busy < idle || s.arrivals.Rate() < s.load()*(1-1e-9) { // Nobody meets anybody, or there are so many that chance is nothing.
		c.Instances = s.least(c)
		return c, true, nil
	}
	target := s.SLO.Seconds()
	if s.SLO <= 0 {
		target = asFast * s.distribution(c, w).Quantile(s.Quantile)
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

// among is the distribution of a choice's latencies with its number of instances.
func (s *search) among(c Choice, w *latency.Waits) (*latency.Distribution, error) {
	if c.Instances == 0 {
		return s.distribution(c, w), nil
	}
	r := latency.Reality{Spread: min(s.Spread, latency.MaxSpread), Instances: c.Instances, Horizon: beyond * s.longest.Seconds()}
	return w.Among(s.arrivals, s.exec[c.Share], r)
}

// search finds the least number from what is busy on, up to most, that meets. Where there
// are recorded requests, it is no less than these take; and where even as many as are
// worth being held ready do not, by the arrivals' process, nothing is looked for, as the
// process has not got what was recorded.
func (s *search) search(most int, left *int, meets func(int) (bool, error), c *Choice) (Choice, bool, error) {
	below, step := int(math.Floor(c.Busy/busiest)), 1
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

// between finds the least number that meets, up to one that does.
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
