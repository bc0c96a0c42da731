package capacity

import (
	"math"
	"time"
)

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
		turn = min(exec.Seconds(), float64(b)/max(rps, SomeLoad))
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
	rps = max(rps, SomeLoad)
	load := rps / up
	return min(up, rps/max(Crew(load, float64(b), left, late), load)), true
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
