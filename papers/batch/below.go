package batch

import (
	"math"
	"slices"
)

// Only returns the shares restricted to the given batch sizes of one share. That share must
// have execution times for them.
func Only(shares []Share, share int, batches ...int) []Share {
	only := slices.Clone(shares)
	for i := range only {
		only[i].Batches = nil
	}
	only[share].Batches = batches
	return only
}

// Check is [Solve] for the share, batch size and timeout of one choice. It predicts the choice
// for other arrivals than it was made for, and finds the least number of instances with which
// it meets the objective. Plan.Short is set if it no longer does. It takes a small part of
// Solve's time.
func Check(o Objective, shares []Share, c Choice) (Plan, error) {
	o.timeouts = append(o.timeouts, c.Timeout)
	return Solve(o, Only(shares, c.Share, c.Batch))
}

// Bears reports whether a choice's share and batch size, with any timeout, meet the objective
// with an instance for every batch. The mean number of busy instances must have room.
func Bears(o Objective, shares []Share, c Choice) bool {
	most := shares[c.Share].Instances
	shares = Only(shares, c.Share, c.Batch)
	shares[c.Share].Instances = 0
	plan, err := solve(o, shares)
	return err == nil && plan.Short == nil && (most == 0 || plan.Best.Busy <= maxBusy*float64(most))
}

// below reports whether the search is only for choices that cost less than Below.
func (s *search) below() bool { return s.Below > 0 && s.Budget <= 0 }

// prune drops the shares' batch sizes with which no request can cost less than Below,
// whatever the timeout. A longer timeout makes fewer batches: on the same requests, each
// batch begins with the same request as with a shorter timeout, or a later one. So the mean
// batch is at most that with the longest timeout.
func (s *search) prune() error {
	means := map[int]float64{}
	for _, b := range s.batches {
		w, err := s.analysis.Waits(b, s.longest.Seconds())
		if err != nil {
			return err
		}
		means[b] = w.MeanBatch()
	}
	s.shares = slices.Clone(s.shares)
	for i, at := range s.shares {
		s.shares[i].Batches = slices.DeleteFunc(slices.Clone(at.Batches), func(b int) bool { return b > len(at.Exec) || means[b] == 0 })
	}
	for _, b := range s.batches {
		s.drop(b, means[b])
	}
	if s.batches = sizes(s.shares); len(s.batches) == 0 {
		return ErrBelow
	}
	return nil
}

// drop drops batches of b from the shares with which no request can then cost less than
// Below. mean is an upper bound for the mean batch of the timeouts still to be tried.
func (s *search) drop(b int, mean float64) {
	for i, at := range s.shares {
		if n := slices.Index(at.Batches, b); n >= 0 && least(at, s.exec[i][:b], mean) >= s.Below {
			s.shares[i].Batches = slices.Delete(at.Batches, n, n+1)
		}
	}
}

// least is a lower bound for the cost of a request in batches with execution times exec and at
// most mean requests on average. A batch of k costs P_k. With the largest convex h ≤ P,
// batches with a mean of m cost at least h(m) (Jensen), and a request h(m)/m. Up to m that is
// least at m, or where h bends, which is at some P_k. For example batches of 1 and 4 take 1
// and 2 s, with a mean of 2: ⅔·1 + ⅓·2 = 4/3 s, and 2/3 s for each request; full ones would
// take 1/2.
func least(at Share, exec []float64, mean float64) float64 {
	price := func(k int) float64 { return exec[k-1]*at.Cost + at.Call }
	mean = min(max(mean, 1), float64(len(exec)))
	lowest, hull := math.Inf(1), math.Inf(1)
	for i := 1; float64(i) <= mean; i++ {
		lowest = min(lowest, price(i)/float64(i))
		if float64(i) == mean {
			hull = min(hull, price(i))
		}
		for j := int(mean) + 1; j <= len(exec); j++ {
			part := (mean - float64(i)) / float64(j-i)
			hull = min(hull, (1-part)*price(i)+part*price(j))
		}
	}
	return min(lowest, hull/mean)
}
