package capacity

import (
	"math"
	"time"
)

// full returns how many requests per second an instance of batch b serves with full batches, as
// one of a pool that gets rps requests per second. left is the time left for waiting, in
// executions. ok is false if a batch takes too long for the SLO.
//
// A request waits for a free instance. These come in turns of b/rps (a pooled queue fills at the
// function's rate, not at an instance's share), or of t with one instance. Then the request
// executes for t. Both must fit into the SLO less the reserve. Batches of one do not wait for
// others by design.
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
	// Few executions take as long as exec, and few requests wait for long. Instances are not
	// planned for both at the same request, so the wait is counted with the mean. Crew counts
	// the rest of an execution that a request comes upon, so left is without a turn.
	return up, (limit - mean.Seconds()) / mean.Seconds(), exec.Seconds()+turn <= limit
}

// pooled is full for requests that come at random: the load divided by the number of equal
// instances with which only the part late of the requests waits too long.
func (o Options) pooled(b int, exec, mean, slo time.Duration, rps, late float64) (float64, bool) {
	up, left, ok := o.full(b, exec, mean, slo, rps)
	if !ok || math.IsInf(left, 1) {
		return up, ok
	}
	rps = max(rps, SomeLoad)
	load := rps / up
	return min(up, rps/max(crew(load, float64(b), left, late), load)), true
}

// sensible reports whether a load needs at most twice the instances that its work would fill,
// plus three. If it needs more, the execution time leaves no room for chance, and such instances
// are of little use.
func sensible(c Candidate, up, load float64) bool {
	t := c.Exec
	if c.Mean > 0 {
		t = c.Mean
	}
	work := max(1, math.Ceil(load*t.Seconds()/float64(c.Config.Batch)))
	return up*(2*work+3) >= load
}
