package capacity

import "math"

// StaffingPercentile is the percentile of functions that set none.
const StaffingPercentile = 99

// Late is the part of a function's requests that may wait longer than its objective allows
// because others came at the same time. It is what the percentile leaves, limited to the range
// in which such estimates are meaningful.
func Late(percentile float64) float64 {
	if !(percentile > 0) {
		percentile = StaffingPercentile
	}
	return min(max(1-percentile/100, 1e-4), 0.5)
}

// crew is the number of instances for a load that comes at random to one queue, such that at most
// the part late of the requests waits too long. load is the work in full batches' time
// (requests/s · t/b), batch the number of requests that an instance takes at once, and patience
// the time that a request may wait, in executions.
//
// A request waits if all N instances are busy. While some are free, batches are of one. So that
// has Erlang's probability C(N, b·load), or 1 above. There are two reasons to wait. One is the
// queue, on average for
//
//	t/N · 1/(1−ρ) · (c_a² + c_s²)/2 = t / (2·b·(N−load))
//
// (Kingman; batches of b come with c_a² = 1/b, their time varies little), and so longer than s
// with probability exp(−2·b·(N−load)·s/t). The other, with batches, is that none of N executions
// that began at any time ends within s: (1−s/t)^N.
//
// For example requests come one at a time, with a load of 2, a patience of one half and 1 %. With
// 4 instances, C is 0.174 and the product 0.174·exp(−2) = 0.0235. With 5 it is 0.0597·exp(−3)
// = 0.0030. The number lies between, where the logarithm of the product equals that of 1 %: 4.41.
// It need not be whole, because other instances may do the rest.
func crew(load, batch, patience, late float64) float64 {
	if !(load > 0) {
		return 0
	}
	w := wait{batch, max(patience, 1e-3), late}
	if load > manyInstances {
		return w.many(load)
	}
	if least := w.alone(); load <= least {
		return load / least
	}
	blocked, before := 1.0, 0.0 // Erlang B, by its recursion.
	for n, offered := 1.0, batch*load; ; n++ {
		blocked = offered * blocked / (n + offered*blocked)
		if n <= load {
			continue
		}
		busy := 1.0
		if offered < n {
			busy = blocked / (1 - offered/n*(1-blocked))
		}
		now := math.Log(busy * w.long(n, load) / late)
		if now > 0 {
			before = now
			continue
		}
		if before == 0 { // With one instance less, load would exceed capacity.
			return w.between(max(load, n-1), n, load)
		}
		return n - 1 + before/(before-now)
	}
}

// wait has the parameters of a queue: how many requests an instance takes at once, how long they
// may wait, and which part of them may wait longer.
type wait struct{ batch, patience, late float64 }

// long is the probability that a waiting request waits too long.
func (w wait) long(n, load float64) float64 {
	phases := 0.0
	if w.batch > 1 && w.patience < 1 {
		phases = math.Pow(1-w.patience, n)
	}
	return min(1, phases+math.Exp(-2*w.batch*(n-load)*w.patience))
}

// between is the number from low to n, of which n is enough, at which so many wait too long as may,
// if all instances are busy.
func (w wait) between(low, n, load float64) float64 {
	for range 30 {
		if middle := (low + n) / 2; w.long(middle, load) <= w.late {
			n = middle
		} else {
			low = middle
		}
	}
	return n
}

// alone is the load that one instance can carry: C(1, x) is x.
func (w wait) alone() float64 {
	low, high := 0.0, 1.0
	for range 30 {
		if middle := (low + high) / 2; min(1, w.batch*middle)*w.long(1, middle) <= w.late {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// manyInstances is the load above which Crew uses the law of large numbers instead of Erlang's
// sum.
const manyInstances = 48

// many is Crew for a large load. For single requests it uses Halfin's and Whitt's limit of
// Erlang's C: 1/(1 + β·Φ(β)/φ(β)) for load + β·√load instances. With batches, all instances count
// as busy.
func (w wait) many(load float64) float64 {
	low, high := 0.0, math.Log(1/w.late)/(2*w.batch*w.patience)
	if w.batch > 1 {
		return load + high
	}
	for range 30 {
		middle := (low + high) / 2
		if halfinWhitt(middle/math.Sqrt(load))*w.long(load+middle, load) <= w.late {
			high = middle
		} else {
			low = middle
		}
	}
	return load + high
}
