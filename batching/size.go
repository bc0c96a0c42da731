package batching

import (
	"math"
	"time"
)

// lookAhead bounds how many waiting requests a look ahead walks through.
const lookAhead = 256

// size chooses the batch that an instance of the kind executes at start: size
// requests, starting at the from-th. passed reports that the instance could have
// served some requests before them. The caller has made sure that the instance can
// meet the last deadline.
//
// size takes the largest batch that meets the head's deadline, unless requests
// behind that batch would be lost. Then it compares serving the head with passing
// over it: for batches of 2, 4, 8, … times that size it finds the earliest requests
// that such a batch can serve in time, and takes the batch that loses the fewest
// requests in all. (Serving an urgent head in a batch of one under overload makes
// the next head urgent too, and batches never recover.)
func (s *Shared) size(now, start time.Duration, k *kind) (from, size int, passed bool) {
	// The first request that the instance can serve in time.
	first := s.line.before(start + k.exec[0])
	if first == s.line.len() {
		return likely(s, now, start, k)
	}
	waiting := s.line.len() - first
	limit := min(waiting, s.limit(now, k), s.line.limit)
	from, size = first, k.largest(s.line.at(first).due-start, limit)
	if limit == 1 {
		return single(s, now, start, k, first), 1, false
	}
	if size == limit {
		return from, size, false
	}
	load := s.load(now, k)
	least := s.lost(start, k, from, size, load, math.Inf(1)) + k.starved(size, limit, load)
	for b := size * 2; least > 0; b *= 2 {
		b = min(b, limit)
		i, n := s.later(start, k, b)
		if n == 0 {
			break
		}
		if lost := s.lost(start, k, i, n, load, least) + k.starved(n, limit, load); lost < least {
			from, size, least = i, n, lost
		}
		if b == limit {
			break
		}
	}
	return from, size, from > first
}

// soonest is when an instance may be done with a batch at the earliest, less what a deadline leaves for the way back.
func (f *fleet) soonest(exec time.Duration) time.Duration { return f.pace.Quick(exec) - f.slack }

// triedFrom is the first request that is more likely in time than late if the instance executes it alone.
func triedFrom(s *Shared, start time.Duration, k *kind) int {
	return s.line.before(start + s.fleet.pace.Of(k.exec[0]))
}

// single chooses the request that the instance executes alone, where first is the first that is in time by Exec. One
// before it is late in at most half of the cases, and always if it is passed over. So it goes first, unless that costs
// those behind it more than half a request. Under a long overload it does, and passing over costs nothing: some
// requests are lost anyway.
func single(s *Shared, now, start time.Duration, k *kind, first int) (from int) {
	tried := triedFrom(s, start, k)
	if tried == first {
		return first
	}
	load := s.load(now, k)
	passing := s.lost(start, k, first, 1, load, math.Inf(1))
	if s.lost(start, k, tried, 1, load, passing)+0.5 < passing {
		return tried
	}
	return first
}

// likely is the largest batch that is in time by the median, or one request that is in time if the instance is quick. If
// no request is in time by Exec, nothing better is to do, so it loses nothing.
func likely(s *Shared, now, start time.Duration, k *kind) (from, size int, passed bool) {
	pace := &s.fleet.pace
	if from = triedFrom(s, start, k); from == s.line.len() {
		from = s.line.before(start + s.fleet.soonest(k.exec[0]))
	}
	limit := min(s.line.len()-from, s.limit(now, k), s.line.limit)
	return from, max(1, k.largest(pace.exec(s.line.at(from).due-start), limit)), false
}

// later returns the earliest batch of b requests that meets its deadlines if it
// starts at start. The batch is smaller if fewer requests wait. size is 0 if there
// is none.
func (s *Shared) later(start time.Duration, k *kind, b int) (from, size int) {
	waiting := s.line.len()
	from = s.line.before(start + k.time(b))
	if from >= waiting {
		return from, 0
	}
	if size = waiting - from; size >= b {
		return from, b
	}
	// A smaller batch takes less time, so some requests before it fit, too.
	from = s.line.before(start + k.time(size))
	return from, k.largest(s.line.at(from).due-start, waiting-from)
}

// lost counts the requests that miss their deadlines if an instance of the kind
// executes size requests from the from-th at start. The rest follows in the largest
// batches that their heads allow. All instances serve the rest together: a batch
// that one instance executes in t takes them t·(k.rate / capacity). A batch must be in time
// by Exec, but those before it take their median times: a sum of times varies little.
//
// lost also counts requests that arrive meanwhile. Full batches serve them if they
// wait at most within − t(full). A backlog that takes d longer than that loses
// rate·d of them. From limit on the count need not be exact.
func (s *Shared) lost(start time.Duration, k *kind, from, size int, load load, limit float64) float64 {
	lost := from
	part := k.rate / load.capacity
	at := start + time.Duration(part*float64(s.fleet.pace.Of(k.time(size))))
	end := min(s.line.len(), from+size+lookAhead)
	for i := from + size; i < end && float64(lost) < limit; {
		left, slack := min(k.reach, end-i), s.line.at(i).due-at
		if k.time(min(size, left)) > slack {
			lost++
			i++
			continue
		}
		b := k.largest(slack, left)
		at += time.Duration(part * float64(s.fleet.pace.Of(k.time(b))))
		i += b
	}
	at += seconds(float64(s.line.total()-end) / load.capacity)
	late := at - start - k.maxWait()
	return float64(lost) + load.rate*max(0, late.Seconds())
}

// starved is how many requests are lost within a quarter of the objective if batches go on to have size requests where
// limit wait for each. A head that is urgent makes a small batch, and that makes the next head urgent. So where small
// batches serve less than arrives, the backlog stays until its heads are passed over. A longer time would pass over
// more heads in bursts that end soon.
func (k *kind) starved(size, limit int, l load) float64 {
	part := float64(size) / float64(limit) * k.time(limit).Seconds() / max(k.time(size).Seconds(), 1e-9)
	return max(0, min(l.rate, l.capacity)-part*l.capacity) * k.within.Seconds() / 4
}

// maxWait is how long a request can wait for a full batch of the kind.
func (k *kind) maxWait() time.Duration { return k.within - k.exec[k.full-1] }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
