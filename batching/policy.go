// Package batching decides which request joins which batch, on which
// instance, and when (INFless §3.2). A [Policy] is a pure state machine for one
// function: a driver tells it the events (a request came, an instance is free) with
// their times, and the policy returns actions. It has no clock, goroutine or socket,
// so production and the simulator drive the same code. Begin with [Policy], then
// [Shared], the default.
package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// RequestID identifies a request for as long as the policy holds it.
type RequestID uint64

// Request is what a policy knows of a request.
type Request struct {
	ID RequestID
	// Deadline is when the answer is due: the arrival plus the SLO, later
	// for a request that found no ready instance.
	Deadline time.Time
	// Class, below [MaxClasses], says which instances may answer the request: those
	// whose Classes contain it.
	Class uint8
	// Within is the time from the arrival to the deadline that the request's own
	// objective gives. 0 means the function's.
	Within time.Duration
	// Elements is the size of the request's rows in elements, all inputs together; 0 if it is not
	// known, or if all rows have one size. Engines run only rows of one size together, unless the
	// instance pads them (Instance.Longest). Only [Shared] reads it.
	Elements int64
	// Rows is the number of the request's rows, of Elements each on average: of its texts. 0 means 1.
	// Only [Shared] reads it.
	Rows int
}

// Sizes says how an instance's times change with the size of the rows. Two values that are equal
// say the same.
type Sizes interface {
	// Factor is by how much a batch whose rows have so many elements takes longer than
	// [Instance.Exec] says. Both are positive.
	Factor(batch int, elements int64) float64
}

// Instance is what a policy knows of a ready instance, or of a stream of one that executes several
// batches at the same time ([Up]).
type Instance struct {
	ID     cluster.InstanceID
	Config cluster.Config
	// Classes is the set of classes of the requests that it may answer: bit i stands
	// for class i. 0 means all.
	Classes uint16
	// Exec[b-1] is the predicted time of a batch of b on this instance, for
	// b = 1…Config.Batch. It never decreases with b. If the instance executes several batches at
	// the same time (Config.Concurrency), it is the time of one while the others execute.
	Exec []time.Duration
	// Sizes says how Exec changes with the size of the rows; nil if it does not, or if that is not
	// known. Only [Shared] reads it.
	Sizes Sizes
	// Longest is the number of elements of the longest row, if the instance pads rows of different sizes
	// to run them together, as texts. It is 0 if it does not. Only [Shared] reads it.
	Longest int64
	// Rate is r_i, the requests/s that the scaling engine wants this instance
	// to get (INFless §3.2); only the policy [InFless] reads it.
	Rate float64
	// Timeout is the longest time that a batch's first request waits for others
	// (BATCH §III-B); only [Buffer] reads it.
	Timeout time.Duration
	// Variant is the name of the artefact that it has loaded. No policy reads it.
	Variant string
	// Revision is the number of the function's revision as which it answers. No policy reads it.
	Revision uint64
	// Slow: even one request takes longer than the objective, so answers are late, and
	// Exec does not hold the real times. No policy reads it.
	Slow bool
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
	// Instance is where the batch of Dispatch goes: an instance, or a stream of one
	// ([InstanceOf]).
	Instance cluster.InstanceID
	// Dispatch is a batch, earliest deadline first. It may be several batches
	// long if the instance's executions are very short. The instance executes it
	// in batches of its Config.Batch.
	Dispatch []RequestID
	// Reject is a request that the driver must refuse at once, for Reason.
	Reject RequestID
	Reason Reason
}

// Policy is one way to batch. Most methods take the time of the event; times never
// go back. After any call, the driver carries out what Actions returns. A policy
// answers each added request exactly once: in one Dispatch, one Reject, or a Cancel
// that returned true. It sends no request to an instance that does not serve the
// request's class. A request whose class no instance serves waits until its deadline.
type Policy interface {
	// Add queues a request: a new one, or one whose instance died.
	Add(now time.Time, r Request)
	// Cancel forgets a request that still waits. It returns false if the
	// request is not waiting (it was dispatched or rejected).
	Cancel(now time.Time, id RequestID) bool
	// Up makes an instance available; a second Up with the same ID changes
	// its config, its times or its classes.
	Up(now time.Time, in Instance)
	// Down removes an instance. The driver retries the requests that the instance
	// executes. Requests that wait for it go back to the queue.
	Down(now time.Time, id cluster.InstanceID)
	// Done says that an instance finished a batch. id is [Action.Instance].
	Done(now time.Time, id cluster.InstanceID)
	// Actions returns what the driver must do now. The slice is valid until the
	// next call.
	Actions(now time.Time) []Action
	// Next is when the driver must call Actions again if nothing happens before.
	// ok is false if there is nothing to wait for.
	Next() (at time.Time, ok bool)
	// Waiting is the number of requests that wait.
	Waiting() int
}

// Travel is the part of the objective reserved for the answer's way back: a
// twentieth, at most 5 ms. An overloaded queue serves every request just before its
// deadline, so without this reserve every answer would arrive just too late.
func Travel(slo time.Duration) time.Duration { return min(slo/20, 5*time.Millisecond) }
