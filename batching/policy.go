// Package batching decides which request joins which batch, on which
// instance, and when (INFless §3.2). A [Policy] is a pure state machine: it is
// told what happens (a request came, an instance is free) with the time at
// which it happened, and answers with what to do. It holds no clock, no
// goroutine and no socket, so production and the simulator drive the very same
// code. One policy serves one function.
package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// RequestID names a request for as long as the policy holds it.
type RequestID uint64

// Request is what a policy knows of a request.
type Request struct {
	ID RequestID
	// Deadline is when the answer is due: the arrival plus the SLO, later
	// for a request that found no ready instance.
	Deadline time.Time
}

// Instance is what a policy knows of a ready instance.
type Instance struct {
	ID     cluster.InstanceID
	Config cluster.Config
	// Exec[b-1] is the predicted time of a batch of b on this instance, for
	// b = 1…Config.Batch. It never decreases with b.
	Exec []time.Duration
	// Rate is r_i, the requests/s that the scaling engine wants this instance
	// to get (INFless §3.2); only the policy [InFless] reads it.
	Rate float64
	// Timeout is how long a batch's first request waits at most for others
	// (BATCH §III-B); only the policy of that name reads it.
	Timeout time.Duration
}

// Reason is why a request is answered without being executed.
type Reason int

// The reasons.
const (
	// Late: the deadline can no longer be met.
	Late Reason = iota
)

// Action is one thing to do. Exactly one of Dispatch and Reject is set.
type Action struct {
	// Instance is where the batch of Dispatch goes.
	Instance cluster.InstanceID
	// Dispatch is a batch, earliest deadline first. It may be several batches
	// long where an instance's executions are very short; the instance
	// executes it in batches of its Config.Batch.
	Dispatch []RequestID
	// Reject is a request to be answered at once.
	Reject RequestID
	Reason Reason
}

// Policy is one way to batch. Every method takes the time at which the thing
// happened; times never go back. After any call, the driver carries out what
// Actions returns. A policy answers each request that was added exactly once:
// in one Dispatch, one Reject, or a Cancel that returned true.
type Policy interface {
	// Add takes a new request, or one whose instance died, back.
	Add(now time.Time, r Request)
	// Cancel forgets a request that still waits. It returns false if the
	// request is not waiting (it was dispatched or rejected).
	Cancel(now time.Time, id RequestID) bool
	// Up makes an instance available; a second Up with the same ID changes
	// its config or its times.
	Up(now time.Time, in Instance)
	// Down removes an instance. The driver retries what it executes;
	// what waited for it goes back to the queue.
	Down(now time.Time, id cluster.InstanceID)
	// Done says that an instance finished a batch.
	Done(now time.Time, id cluster.InstanceID)
	// Actions returns what is to be done now. The slice is valid until the
	// next call.
	Actions(now time.Time) []Action
	// Next is when Actions must be asked again if nothing happens before;
	// ok is false if there is nothing to wait for.
	Next() (at time.Time, ok bool)
	// Waiting is the number of requests that wait.
	Waiting() int
}

// Travel is what is kept of the objective for the answer's way back: a twentieth,
// at most 5 ms. An overloaded queue serves every request just before its
// deadline, so without it they would all arrive just too late.
func Travel(slo time.Duration) time.Duration { return min(slo/20, 5*time.Millisecond) }
