package batching

import "time"

// lookAhead bounds how many waiting requests a look ahead walks through.
const lookAhead = 256

// size chooses the batch that in takes now: size requests, starting at the
// from-th. The caller has made sure that in can meet the last deadline.
//
// The largest batch that meets the head's deadline is taken unless it is
// smaller than what waits and requests behind it would be lost by that. Then
// the head is compared with passing over it: of the batches 1, 2, 4, … that the
// k-th request's deadline allows, the one that loses least in all is taken.
// (Serving an urgent head in a batch of one under overload makes the next head
// urgent too, and batches never recover.)
func (s *Shared) size(now time.Time, in *sharedInstance) (from, size int) {
	start := in.start(now)
	// The first request that in can serve at all.
	first := s.queue.before(start.Add(in.Exec[0]))
	waiting := min(s.queue.len(), first+lookAhead+in.reach)
	limit := min(waiting, in.reach)
	from, size = first, in.largest(start, s.queue.at(first).Deadline, min(limit, waiting-first))
	if size == min(limit, waiting-first) {
		return from, size
	}
	least := s.lost(start, in, from, size, waiting)
	for b := size * 2; least > 0; b *= 2 {
		b = min(b, limit)
		k := s.queue.before(start.Add(in.time(b)))
		if k >= waiting {
			break
		}
		n := min(b, waiting-k)
		if lost := s.lost(start, in, k, n, waiting); lost < least {
			from, size, least = k, n, lost
		}
		if b == limit {
			break
		}
	}
	return from, size
}

// largest is the largest b ≤ limit with start + t(b) ≤ deadline.
func (in *sharedInstance) largest(start, deadline time.Time, limit int) int {
	slack := deadline.Sub(start)
	lo, hi := 0, limit
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if in.time(mid) <= slack {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// lost counts the requests among the first waiting ones that miss their
// deadlines if in executes size requests from the from-th at start and the rest
// follows in the largest batches that their heads allow, with as many
// executions side by side as there are instances.
func (s *Shared) lost(start time.Time, in *sharedInstance, from, size, waiting int) int {
	lost := from
	parallel := time.Duration(max(1, len(s.instances)))
	at := start.Add(in.time(size) / parallel)
	for i := from + size; i < waiting; {
		b := in.largest(at, s.queue.at(i).Deadline, min(in.reach, waiting-i))
		if b == 0 {
			lost++
			i++
			continue
		}
		at = at.Add(in.time(b) / parallel)
		i += b
	}
	return lost
}

// hold decides whether a batch of size should wait to fill, and until when. The
// window of the head closes at d−t(b+1): later, one more request would make the
// head late. Within it, two things are worth waiting for.
//
// The first is a load that batches which start at once cannot serve: no b exists
// for which all instances together serve the rate, N·b/t(b) ≥ λ, while a request
// that arrives just after a batch began is still in time, t(b)/N + t(b) ≤ SLO.
// Full batches may serve it; these wait for the whole window.
//
// The second is a busy function: above half of what full batches could serve,
// N·B/t(B), a batch waits for a fiftieth of the SLO. Every exchange costs provider
// and instance processor time that t(b) does not contain, so larger batches serve
// more. Below that, nothing waits.
func (s *Shared) hold(now time.Time, in *sharedInstance, size int) (until time.Time, hold bool) {
	if size >= in.Config.Batch || in.inFlight > 0 || size < s.queue.len() {
		return time.Time{}, false
	}
	window := s.queue.at(0).Deadline.Add(-in.Exec[size]).Add(-timerSlack)
	if !now.Before(window) {
		return time.Time{}, false
	}
	n, rate := float64(len(s.instances)), s.arrivals.at(now)
	if !s.sustains(in, n, rate) {
		b := in.largest(now, now.Add(s.options.SLO), in.Config.Batch)
		// Beyond N·b/t(b), to wait would only add latency.
		if b > size && n*float64(b) >= rate*in.Exec[b-1].Seconds() {
			return window, true
		}
	}
	b := in.Config.Batch
	if 2*rate*in.Exec[b-1].Seconds() < n*float64(b) {
		return time.Time{}, false
	}
	if head := s.queue.at(0).ID; s.lingering != head {
		s.lingering, s.lingerUntil = head, now.Add(s.options.SLO/50)
	}
	if s.lingerUntil.Before(window) {
		window = s.lingerUntil
	}
	return window, now.Before(window)
}

// sustains reports whether batches that start at once, on n instances like in,
// serve the rate in time.
func (s *Shared) sustains(in *sharedInstance, n, rate float64) bool {
	for b := 1; ; b *= 2 {
		b = min(b, in.Config.Batch)
		t := in.Exec[b-1]
		if n*float64(b) >= rate*t.Seconds() && t+t/time.Duration(n) <= s.options.SLO {
			return true
		}
		if b == in.Config.Batch {
			return false
		}
	}
}

// timerSlack is kept between the end of a wait and the last possible start, for
// a timer that fires late.
const timerSlack = time.Millisecond
