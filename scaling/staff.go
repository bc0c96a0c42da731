package scaling

import (
	"math"
	"time"
)

// DefaultPercentile is the objective of functions that name none.
const DefaultPercentile = 99

// unlucky is the part of a function's requests that may have to wait longer
// than its objective allows because others came at the same time: what the
// percentile of its objective leaves, within what such estimates can say.
func unlucky(percentile float64) float64 {
	if !(percentile > 0) {
		percentile = DefaultPercentile
	}
	return min(max(1-percentile/100, 1e-4), 0.5)
}

// crew is how many instances a load needs that comes at random to one queue, so
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

// many is crew for a large load, with Halfin's and Whitt's limit of Erlang's C for
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

// full is how many requests per second an instance of batch b serves with full
// batches, as one of a pool that rps requests per second come to. It reports false
// if a batch takes too long for the SLO: a request waits until an instance is
// free, in turns at the function's rate b/rps (a pooled queue fills at that rate,
// not at an instance's share), or with one instance t, and is then executed for t,
// all within what the reserve leaves of the SLO. Single requests do not wait for
// others by design. left is what is left for waiting, in executions.
func (o Options) full(b int, exec, mean, slo time.Duration, rps float64) (up, left float64, ok bool) {
	if mean <= 0 {
		mean = exec
	}
	if b < 1 || exec <= 0 {
		return 0, 0, false
	}
	up = float64(b) / mean.Seconds()
	if slo <= 0 {
		return up, math.Inf(1), true
	}
	limit, turn := slo.Seconds()*(1-o.Reserve), 0.0
	if b > 1 {
		turn = min(exec.Seconds(), float64(b)/max(rps, someLoad))
	}
	// Few executions are as long as exec allows for, and few requests wait for
	// long: that both happens to the same one is not what instances are for.
	return up, (limit - mean.Seconds() - turn/2) / mean.Seconds(), exec.Seconds()+turn <= limit
}

// pooled is full for requests that come at random: the load, shared among as many
// equal instances as it takes for a part late of them to wait too long.
func (o Options) pooled(b int, exec, mean, slo time.Duration, rps, late float64) (float64, bool) {
	up, left, ok := o.full(b, exec, mean, slo, rps)
	if !ok || math.IsInf(left, 1) {
		return up, ok
	}
	rps = max(rps, someLoad)
	load := rps / up
	return min(up, rps/max(crew(load, float64(b), left, late), load)), true
}

// sensible reports whether a load takes no more than twice, and three, of the
// instances that its work would fill. Where it takes more, the time leaves no room
// for chance, and little is to be hoped for from such instances.
func sensible(c Candidate, up, load float64) bool {
	t := c.Exec
	if c.Mean > 0 {
		t = c.Mean
	}
	work := max(1, math.Ceil(load*t.Seconds()/float64(c.Config.Batch)))
	return up*(2*work+3) >= load
}
