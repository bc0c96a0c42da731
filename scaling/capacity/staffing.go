package capacity

import "math"

// StaffingPercentile is the objective of functions that name none.
const StaffingPercentile = 99

// Late is the part of a function's requests that may have to wait longer
// than its objective allows because others came at the same time: what the
// percentile of its objective leaves, within what such estimates can say.
func Late(percentile float64) float64 {
	if !(percentile > 0) {
		percentile = StaffingPercentile
	}
	return min(max(1-percentile/100, 1e-4), 0.5)
}

// Crew is how many instances a load needs that comes at random to one queue, so
// that no more than the part late of the requests wait longer than they may. load is
// what they have to do, in full batches' time (requests/s · t/b), batch how many
// requests an instance takes at once and patience how long a request may wait, in
// executions.
//
// A request waits if all N instances are busy. As long as they are not, batches
// are of one, so that has Erlang's probability C(N, b·load), or 1 above. If it
// waits, then because of the queue, on average for
//
//	t/N · 1/(1−ρ) · (c_a² + c_s²)/2 = t / (2·b·(N−load))
//
// (Kingman; batches of b come with c_a² = 1/b, their time varies little), and so
// longer than s with probability exp(−2·b·(N−load)·s/t); or, with batches, because
// none of N executions that began at any time ends within s: (1−s/t)^N.
//
// For example one request at a time, a load of 2, patience of one half and 1 %: of 4
// instances, C is 0.174 and the product 0.174·exp(−2) = 0.0235; of 5, 0.0597·exp(−3)
// = 0.0030. The number is between these, where the logarithm of the product is
// that of what is wanted: 4.41. Other instances may do the rest.
func Crew(load, batch, patience, late float64) float64 {
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
		if before == 0 { // One less would be less than the load itself.
			return (max(load, n-1) + n) / 2
		}
		return n - 1 + before/(before-now)
	}
}

// wait is what is given of a queue: how many requests an instance takes at once,
// how long they may wait, and which part of them may wait for longer.
type wait struct{ batch, patience, late float64 }

// long is the probability that a request which waits does so for too long.
func (w wait) long(n, load float64) float64 {
	phases := 0.0
	if w.batch > 1 && w.patience < 1 {
		phases = math.Pow(1-w.patience, n)
	}
	return min(1, phases+math.Exp(-2*w.batch*(n-load)*w.patience))
}

// alone is the load that one instance bears: C(1, x) is x.
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

// manyInstances is the load from which on the law of large numbers is taken
// instead of Erlang's sum.
const manyInstances = 48

// many is Crew for a large load, with Halfin's and Whitt's limit of Erlang's C for
// single requests: 1/(1 + β·Φ(β)/φ(β)) for load + β·√load instances. Those that
// batch are all busy.
func (w wait) many(load float64) float64 {
	low, high := 0.0, math.Log(1/w.late)/(2*w.batch*w.patience)
	if w.batch > 1 {
		return load + high
	}
	for range 30 {
		middle := (low + high) / 2
		beta := middle / math.Sqrt(load)
		normal := math.Exp(-beta*beta/2) / math.Sqrt(2*math.Pi)
		busy := 1 / (1 + beta*(1+math.Erf(beta/math.Sqrt2))/2/normal)
		if busy*w.long(load+middle, load) <= w.late {
			high = middle
		} else {
			low = middle
		}
	}
	return load + high
}
