package steering

import (
	"math"
	"time"
)

const (
	// share is the part of what may miss the objective that releases may spend. The rest is for misses that have
	// other causes.
	share = 0.5
	// noticing is how long a plan takes to notice a load that has risen.
	noticing = 100 * time.Millisecond
	// smoothing is the time over which the rate of requests is smoothed.
	smoothing = 20 * time.Second
	// leastCost is the fewest requests that a wrong release costs.
	leastCost = 2
	// maxDebt bounds a debt, in wrong releases.
	maxDebt = 10
)

// credit counts the requests that the percentile allows to miss the objective, less those that missed it. Its rule is
// that of adaptive conformal inference (Gibbs, Candès 2021): what is held beyond the load falls while there is credit
// and rises with each miss, so in the long run no more requests miss than may, whatever the load does.
//
// A release is wrong if the load comes back at once: requests then miss the objective until a plan notices it and an
// instance has started. A full credit pays for one such release. This is the argument of the ski rental: what is held
// has by then cost as many requests' worth as it can save.
//
// For example 99 % of 200/s must meet the objective, and an instance starts in 0.3 s. A wrong release costs
// 200·(0.1 + 0.3) = 80 requests. Of what may miss, 0.5·0.01·200 = 1/s are for releases. The credit is full after
// 80 s without a miss; after 8 s if it is 90 %, and after 800 s if it is 99.9 %.
type credit struct {
	// requests is the credit, and rate the smoothed rate in requests/s.
	requests, rate float64
	// cost is what a wrong release costs, in requests.
	cost  float64
	last  mark
	known bool
}

// count books the requests since the last look.
func (c *credit) count(now time.Time, s Seen) {
	here := mark{now, s.InTime, s.Late, s.Refused, s.Slow}
	if !c.known {
		c.last, c.known = here, true
		return
	}
	passed := now.Sub(c.last.at).Seconds()
	missed := misses(&c.last, &here)
	all := missed + float64(s.InTime-c.last.inTime)
	c.last = here
	if passed > 0 {
		c.rate += (all/passed - c.rate) * (1 - math.Exp(-passed/smoothing.Seconds()))
	}
	c.cost = max(leastCost, c.rate*(noticing+s.Start).Seconds())
	c.requests += share*(1-s.Percentile/100)*all - missed
	c.requests = max(-maxDebt*c.cost, min(c.cost, c.requests))
}

// Credit is the part of a wrong release that the function can afford now, from 0 to 1: it has kept its objective better
// than promised for that long.
func (l *Loop) Credit() float64 {
	if l.credit.cost == 0 {
		return 0
	}
	return max(0, l.credit.requests) / l.credit.cost
}
