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

// hold decides whether a batch of size should wait to fill, and until when. It
// waits only if the measured arrival rate is more than batches that start at
// once can serve: if no b exists for which all instances together serve the
// rate, N·b/t(b) ≥ λ, and a request that arrives just after a batch began is
// still in time, t(b)/N + t(b) ≤ SLO. Then the window of the head closes at
// d−t(b+1): later, one more request would make the head late.
func (s *Shared) hold(now time.Time, in *sharedInstance, size int) (until time.Time, hold bool) {
	if size >= in.Config.Batch || in.inFlight > 0 || size < s.queue.len() {
		return time.Time{}, false
	}
	until = s.queue.at(0).Deadline.Add(-in.Exec[size]).Add(-timerSlack)
	if !now.Before(until) {
		return time.Time{}, false
	}
	rate := s.arrivals.at(now)
	n := float64(len(s.instances))
	for b := 1; ; b *= 2 {
		b = min(b, in.Config.Batch)
		t := in.Exec[b-1]
		serves := n*float64(b) >= rate*t.Seconds()
		if serves && t+t/time.Duration(len(s.instances)) <= s.options.SLO {
			return time.Time{}, false
		}
		if b == in.Config.Batch {
			break
		}
	}
	// Even full batches that wait cannot serve a rate beyond N·B/t(B); to
	// wait would only add latency.
	b := in.largest(now, now.Add(s.options.SLO), in.Config.Batch)
	return until, b > size && n*float64(b) >= rate*in.Exec[b-1].Seconds()
}

// timerSlack is kept between the end of a wait and the last possible start, for
// a timer that fires late.
const timerSlack = time.Millisecond
