package batching

import (
	"math"
	"time"
)

// lookAhead bounds how many waiting requests a look ahead walks through.
const lookAhead = 256

// size chooses the batch that an instance of the kind executes at start: size
// requests, starting at the from-th; passed tells that it could have served
// some before them. The caller has made sure that it can meet the last deadline.
//
// The largest batch that meets the head's deadline is taken unless it is
// smaller than what waits and requests would be lost by that. Then the head is
// compared with passing over it: of the batches 1, 2, 4, … that the k-th
// request's deadline allows, the one that loses least in all is taken. (Serving
// an urgent head in a batch of one under overload makes the next head urgent
// too, and batches never recover.)
func (s *Shared) size(now, start time.Duration, k *kind) (from, size int, passed bool) {
	// The first request that it can serve at all.
	first := s.queue.before(start + k.exec[0])
	waiting := s.queue.len() - first
	limit := min(waiting, k.reach)
	from, size = first, k.largest(s.queue.at(first).due-start, limit)
	if size == limit {
		return from, size, false
	}
	rate := s.arrivals.at(now)
	least := s.lost(start, k, from, size, rate, math.Inf(1))
	for b := size * 2; least > 0; b *= 2 {
		b = min(b, limit)
		i, n := s.younger(start, k, b)
		if n == 0 {
			break
		}
		if lost := s.lost(start, k, i, n, rate, least); lost < least {
			from, size, least = i, n, lost
		}
		if b == limit {
			break
		}
	}
	return from, size, from > first
}

// younger is the earliest batch of b, or of as many as there are for one. None
// has size 0.
func (s *Shared) younger(start time.Duration, k *kind, b int) (from, size int) {
	waiting := s.queue.len()
	from = s.queue.before(start + k.time(b))
	if from >= waiting {
		return from, 0
	}
	if size = waiting - from; size >= b {
		return from, b
	}
	// Fewer take less time, so that some before them fit, too.
	from = s.queue.before(start + k.time(size))
	return from, k.largest(s.queue.at(from).due-start, waiting-from)
}

// lost counts the requests that miss their deadlines if an instance of the kind
// executes size requests from the from-th at start and the rest follows in the
// largest batches that their heads allow. In the time in which this kind serves
// a batch, all instances together serve one every (rate of one / capacity)-th
// of that.
//
// Those who come meanwhile are counted, too: they can be served in full batches
// if they wait no longer than within − t(full). A backlog that takes longer by d
// will cost rate·d requests. From limit on it does not matter how many they are.
func (s *Shared) lost(start time.Duration, k *kind, from, size int, rate, limit float64) float64 {
	lost := from
	part := k.rate / s.fleet.capacity
	at := start + time.Duration(part*float64(k.time(size)))
	end := min(s.queue.len(), from+size+lookAhead)
	for i := from + size; i < end && float64(lost) < limit; {
		left, slack := min(k.reach, end-i), s.queue.at(i).due-at
		if k.time(min(size, left)) > slack {
			lost++
			i++
			continue
		}
		b := k.largest(slack, left)
		at += time.Duration(part * float64(k.time(b)))
		i += b
	}
	at += seconds(float64(s.queue.len()-end) / s.fleet.capacity)
	late := at - start - s.patient(k)
	return float64(lost) + rate*max(0, late.Seconds())
}

// patient is how long a request can wait for a full batch of the kind.
func (s *Shared) patient(k *kind) time.Duration { return s.within - k.exec[k.full-1] }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
