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
	// silentGaps is how many times the mean gap may be without an arrival before none are expected.
	silentGaps = 8
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
	s.rate = s.decayed(now) + 1/spareWindow.Seconds()
	s.last, s.left = now, min(maxSpare, s.left+spoiled)
}

// at is the rate at a time. After a pause of as many usual gaps as arrivals at random hardly have, none come any more.
func (s *spare) at(now time.Duration) float64 {
	if (now-s.last).Seconds()*s.rate > silentGaps {
		return 0
	}
	return s.decayed(now)
}

func (s *spare) decayed(now time.Duration) float64 {
	return s.rate * math.Exp(-float64(now-s.last)/float64(spareWindow))
}

// until is when the rate has fallen to one that is positive if no more requests come.
func (s *spare) until(rate float64) time.Duration {
	falls := max(0, math.Log(s.rate/rate)) * spareWindow.Seconds()
	return s.last + seconds(min(falls, silentGaps/s.rate)) + time.Microsecond
}

// excess is the rate of the requests that can be in time and that no other instance serves while one of kind k does not.
// It is 0 if the other instances can serve all.
func excess(s *Shared, now time.Duration, k *kind) float64 {
	return max(0, s.spare.at(now)-others(s, now, k))
}

// others is the rate that the other instances serve.
func others(s *Shared, now time.Duration, k *kind) float64 {
	rate := s.load(now, k).capacity - k.rate
	for _, b := range s.fleet.busy.All() {
		if m := &s.fleet.members[b.Slot]; m.hopeless {
			rate -= m.kind.rate
		}
	}
	return max(0, rate)
}

// spoils is how many requests are late, on average, because an instance of kind k executes one of kind of at a time, which
// is late in any case: those that come while it is executed and cannot wait for its end. excess is their rate.
//
// For example 20 requests/s come to one instance, with 85 ms for waiting each. While it executes one for 170 ms, those of
// the first 85 ms are late: 1.7 on average.
func spoils(excess float64, k, of *kind) float64 {
	return excess * max(0, of.real-k.maxWait()).Seconds()
}

// spoiling decides which requests that are late in any case an instance of kind k, free at start, may execute.
type spoiling struct {
	start time.Duration
	k     *kind
	// others and excess are what the functions of these names return, if known.
	known          bool
	others, excess float64
}

// suits returns the kind as which the instance should execute a request of kind of, nil if it should not.
// One that is in time if the instance is quick should, whatever its objective is.
func (o *spoiling) suits(s *Shared, of *kind, w *waiter) *kind {
	left := w.due - o.start
	switch {
	case s.fleet.soonest(max(of.real, of.exec[0])) <= left:
		return of
	case of.real > 0 && s.fleet.soonest(of.exec[0]) <= left && !s.fleet.inTimeSomewhere(w) && o.allow(s, of):
		return of
	}
	return nil
}

// allow reports whether the instance may execute a request of kind of: not too many others are late for that. If they are,
// it sets s.again to the time at which there are few enough.
func (o *spoiling) allow(s *Shared, of *kind) bool {
	if !o.known {
		o.known, o.others = true, others(s, o.start, o.k)
		o.excess = max(0, s.spare.at(o.start)-o.others)
	}
	if spoils(o.excess, o.k, of) <= s.spare.left {
		return true
	}
	most := s.spare.left / (of.real - o.k.maxWait()).Seconds() // Some are late for it, so it is positive.
	if at := max(o.start+1, s.spare.until(most+o.others)); s.again == 0 || at < s.again {
		s.again = at
	}
	return false
}
