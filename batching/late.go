package batching

import (
	"math"
	"time"
)

// Some requests take longer than their objective even on a free instance: a long text, where the objective is for short
// ones. They are late in any case. An instance cannot be interrupted, so one of them may make others late that come while
// it is executed. This file decides whether that is too many.

const (
	// spoiled is the part of the requests that others may make late which are late in any case. It is half of what the
	// 99th percentile allows.
	spoiled = 1.0 / 200
	// maxSpare bounds what may be spoiled at once, in requests; firstSpare may be from the beginning.
	maxSpare, firstSpare = 4.0, 1.0
	// spareWindow is the time over which the weight of an arrival falls to 1/e.
	spareWindow = 10 * time.Second
)

// spare is how many requests may be late because of those that are late in any case.
type spare struct {
	left float64
	// rate is that of the requests that can be in time, in requests/s, at the time last.
	rate float64
	last time.Duration
}

// add counts a request that can be in time.
func (s *spare) add(now time.Duration) {
	s.rate = s.at(now) + 1/spareWindow.Seconds()
	s.last, s.left = now, min(maxSpare, s.left+spoiled)
}

func (s *spare) at(now time.Duration) float64 {
	return s.rate * math.Exp(-float64(now-s.last)/float64(spareWindow))
}

// spoils is how many requests are late, on average, because an instance of kind k executes one of kind of at a time, which
// is late in any case: those that come while it is executed and cannot wait for its end. It is 0 if the other
// instances can serve all.
//
// For example 20 requests/s come to one instance, with 85 ms for waiting each. While it executes one for 170 ms, those of
// the first 85 ms are late: 1.7 on average.
func spoils(s *Shared, now time.Duration, k, of *kind) float64 {
	others := s.load(now, k).capacity - k.rate
	for _, b := range s.fleet.busy.All() {
		if m := &s.fleet.members[b.Slot]; m.hopeless {
			others -= m.kind.rate
		}
	}
	rate := s.spare.at(now) - max(0, others)
	return max(0, rate*(of.real-k.maxWait()).Seconds())
}

// worth reports whether an instance of kind k may execute a request of kind of at a time although it is late there: no
// other instance can answer it in time, and not too many others are late for that.
func worth(s *Shared, now time.Duration, k, of *kind, w *waiter) bool {
	return !s.fleet.inTimeSomewhere(w) && spoils(s, now, k, of) <= s.spare.left
}
