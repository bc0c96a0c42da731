package scaling

import (
	"math"
	"time"
)

// Queued is what is known of a function's queue of requests that may wait.
type Queued struct {
	// Requests is how many were in the queue at At and not answered. At is zero if nobody knows.
	At       time.Time
	Requests int
	// Begun counts those that have left the queue since the function began, and Waiting those of
	// them that are in no instance yet.
	Begun   uint64
	Waiting int
	// Within is how long one may wait.
	Within time.Duration
}

// Backlog turns the readings of a queue whose requests may wait into a load. Its zero value has read
// nothing.
//
// The load is the smallest at which no request waits for longer than it may: the rate at which
// requests come, and at least the length of the queue over the time that they may wait (Little's
// law). How fast the queue is emptied says nothing: it is emptied as fast as the instances can, so
// plans would follow themselves.
//
// For example the SLO is 50 ms, and a request of the queue may wait for a minute. 10,000 requests
// at once are 10,000/60 s = 167/s, not 10,000/50 ms = 200,000/s. If then 100/s come, the load is
// 167/s until the queue is emptied, and then 100/s.
type Backlog struct {
	read Queued
	// rate is at which requests came in the last Within, those of t ago counting e^(−t/Within). least
	// is the length of the queue over Within. It does not fall while the queue is emptied.
	rate, least float64
}

// Load takes in a reading, which may be the same as before, and returns the load in requests/s.
func (b *Backlog) Load(now time.Time, q Queued) float64 {
	within := q.Within.Seconds()
	if q.At.After(b.read.At) {
		passed := q.At.Sub(b.read.At).Seconds()
		if !b.read.At.IsZero() {
			came := max(0, float64(q.Requests-b.read.Requests)+float64(q.Begun)-float64(b.read.Begun))
			b.rate += (1 - math.Exp(-passed/within)) * (came/passed - b.rate)
		}
		b.read = q
		length := float64(q.Requests)
		if b.least = max(b.least, length/within); length < b.least*passed {
			b.least = length / within // It is empty before the next reading.
		}
	}
	if now.Sub(b.read.At) > q.Within { // The queue cannot be read, so nothing comes out of it.
		*b = Backlog{}
	}
	return max(b.rate, b.least, float64(q.Waiting)/within)
}
