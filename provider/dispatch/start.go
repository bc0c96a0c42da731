package dispatch

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/batching"
)

// start is the time in which the first instances for a load are started, or get larger shares.
// Requests that come then wait as those do that found no instance, since the first instance is
// busy with these. It begins with a request that finds no ready instance, or by [Await], and ends by [Starts], or
// at the latest the cold wait after the last such request.
//
// For example, seven requests wait for a first instance, which takes two at a time for 300 ms. The
// next request would be refused with an objective of 400 ms, although two more instances start.
type start struct {
	// cold is when a request of each class last found no ready instance, zero if the time is over.
	cold [batching.MaxClasses]time.Time
	// active is set if one of cold is.
	active atomic.Bool
	// settled: nothing starts any more.
	settled bool
	// unanswered is the number of requests that came while something started, and wait.
	// Those that come later are not counted: at half of the capacity some request always waits,
	// so the time would never end.
	unanswered atomic.Int64
}

// begin takes in a request of a class that finds no ready instance. The lock is held.
func (s *start) begin(class uint8, now time.Time) {
	s.cold[class], s.settled = now, false
	s.active.Store(true)
}

// covers reports whether a request that finds a ready instance waits, too. The lock is held.
func (s *start) covers(class uint8, now time.Time, coldWait time.Duration) bool {
	return s.active.Load() && now.Sub(s.cold[class]) < coldWait
}

// Await says that instances stop before those that take their load have room. Requests that wait, and
// those that come until [Starts], wait as for a first instance.
func Await(d *Dispatcher) {
	d.delegate(d.locked(func(now time.Time) {
		for class := range d.start.cold {
			d.start.begin(uint8(class), now)
		}
		for _, id := range slices.Sorted(maps.Keys(d.waiting.calls)) {
			if c := d.waiting.calls[id]; !c.waitsForStart() && d.policy.Cancel(now, id) {
				c.orphaned = true
				c.extend(now, d.options.ColdWait, false)
				d.policy.Add(now, c.asPolicy())
			}
		}
	}), nil)
}

// Starts says whether instances of the dispatcher's function start or get other shares. If none
// does, new requests are refused again if they cannot be in time: at once if the instances carry
// less than the load (short), otherwise when those that came during the start are answered.
func Starts(d *Dispatcher, starts, short bool) {
	if !d.start.active.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start.settled = !starts
	if starts || !short && d.start.unanswered.Load() > 0 {
		return
	}
	d.start.cold = [batching.MaxClasses]time.Time{}
	d.start.active.Store(false)
}
