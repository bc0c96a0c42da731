package otp

import (
	"cmp"
	"slices"
	"time"
)

// Share is one amount of resources that instances could have.
type Share struct {
	// Cost is what it costs per second.
	Cost float64
	// Exec[k-1] is the time of a batch of k; it never decreases with k.
	Exec []time.Duration
	// Batches are the batch sizes to be considered, each with a time.
	Batches []int
}

// Objective is what is asked for.
type Objective struct {
	// Rate is the load in requests per second.
	Rate float64
	// SLO bounds the latency of so much of all requests, 0.99 for the 99th
	// percentile.
	SLO      time.Duration
	Quantile float64
}

// Choice is what the optimiser found.
type Choice struct {
	// Share is the index of the share, Batch B and Timeout T.
	Share   int
	Batch   int
	Timeout time.Duration
	// Cost is that of one request, Within the part of the requests that are
	// predicted to be answered within the SLO.
	Cost, Within float64
	// longest is the most that a request waits and is executed for.
	longest time.Duration
}

// steps is into how many parts the SLO is divided in the search for a timeout.
const steps = 64

// Optimise solves Eq. 2 by exhaustive search over shares, batch sizes and
// timeouts: the cheapest request of which the percentile meets the SLO. If none
// does, it is the choice with the most requests within the SLO, of equal ones the
// fastest. Without an SLO, it is as if that were a second. Equal choices are decided in favour of the smaller
// batch, the shorter timeout, the first share. ok is false if there is nothing to
// choose from.
func Optimise(o Objective, shares []Share) (best Choice, ok bool) {
	if o.SLO <= 0 {
		o.SLO = time.Second
	}
	for _, b := range sizes(shares) {
		for step := range steps + 1 {
			wait := o.SLO * time.Duration(step) / steps
			if b == 1 && step > 0 {
				break
			}
			buffer := Buffer{Rate: o.Rate, Batch: b, Timeout: wait}.outcome()
			for i, s := range shares {
				if b > len(s.Exec) || !slices.Contains(s.Batches, b) || step > 0 && wait+s.Exec[0] > o.SLO {
					continue
				}
				if c := o.price(i, s, buffer); !ok || o.better(c, best) {
					best, ok = c, true
				}
			}
		}
	}
	return best, ok
}

// sizes lists the batch sizes of all shares.
func sizes(shares []Share) []int {
	var all []int
	for _, s := range shares {
		all = append(all, s.Batches...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(b int) bool { return b < 1 })
}

// price is what a choice costs and how good it is.
func (o Objective) price(share int, s Share, b outcome) Choice {
	return Choice{Share: share, Batch: b.Batch, Timeout: b.Timeout, Cost: s.Cost * b.busy(s.Exec), Within: b.within(o.SLO, s.Exec), longest: b.Timeout + s.Exec[b.Batch-1]}
}

// better reports whether a is to be preferred to b.
func (o Objective) better(a, b Choice) bool {
	meets := func(c Choice) int {
		if c.Within >= o.Quantile {
			return 1
		}
		return 0
	}
	if m := cmp.Compare(meets(a), meets(b)); m != 0 {
		return m > 0
	}
	if meets(a) == 0 {
		if d := cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(b.longest, a.longest)); d != 0 {
			return d > 0
		}
	}
	return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Batch, a.Batch), cmp.Compare(b.Timeout, a.Timeout), cmp.Compare(b.Share, a.Share)) > 0
}
