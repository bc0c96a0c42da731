package batching

import "time"

// patience is how long a kind's next batch waits to become larger: until until, as
// long as head is its first request.
type patience struct {
	head  RequestID
	until time.Duration
}

// hold decides whether the batch that starts at the from-th request waits to
// fill, and until when. It holds only a batch that has every request from there on.
// The batch may wait until d−t(b+1), where d is its first deadline: after that, one
// more request would make the first one late. A patient request is held no longer than
// one that has just its objective. There are three reasons to wait: a
// batch size that the load needs, fewer exchanges for a busy function (both in
// fillWait), and a free instance for the next requests (in spacingWait).
func (s *Shared) hold(now time.Duration, k *kind, from, size int) (until time.Duration, hold bool) {
	if size >= k.batch || size >= s.limit(now, k) || from+size < s.line.total() {
		return 0, false
	}
	head := s.line.at(from)
	window := head.hold - k.exec[size] - timerSlack
	if now >= window {
		return 0, false
	}
	if s.deferred {
		return window, true
	}
	load, base := s.load(now, k), k.base()
	if base.patience.head != head.id {
		base.patience = patience{head.id, now + s.fillWait(k, size, load)}
	}
	if until = base.patience.until; until <= now {
		until = now + s.spacingWait(now, k, size, load)
	}
	until = min(window, until)
	return until, until > now
}

// fillWait is how long a batch of size requests should wait for more.
//
// A request that joins saves the time of an execution of its own less the time by which it lengthens
// this one. At a rate λ a wait of w saves λ·w times that, and w is lost. So a batch waits only if λ times
// the saved time is at least 1. For example with t(1) = 40 ms and t(2) = 73 ms a second request saves
// 7 ms, and at 25 requests/s one takes 40 ms to come: the instance would idle for 40 ms to save 7. Both
// are sums over many executions, so their medians count.
//
// C is the rate that all instances together serve in full batches. At a rate λ,
// each instance must serve λ/C of its own rate in full batches. So the batch needs
// the least b with b/t(b) ≥ λ/C·(full/t(full)), and waits as long as the missing
// requests take to come. For example two instances with t(1) = 60 ms and
// t(8) = 100 ms serve 160 requests/s. At 60 requests/s, 30 for each, b = 2 with
// t(2) = 66 ms is enough and b = 1 (17/s) is not: a lone request waits 17 ms for
// the second.
//
// A function whose load is above half of C is busy: its batches wait for a
// fiftieth of the SLO. Every exchange costs the provider and the instance processor
// time that t(b) does not contain, so larger batches serve more.
func (s *Shared) fillWait(k *kind, size int, l load) (wait time.Duration) {
	pace := &s.fleet.pace
	if saved := pace.Of(k.exec[0]-(k.exec[size]-k.exec[size-1])) + exchange; l.rate*saved.Seconds() < 1 {
		return 0
	}
	need := l.rate / l.capacity * k.rate
	if 2*l.rate > l.capacity {
		wait = s.options.SLO / 50
	}
	b := size
	for b < k.batch && float64(b) < need*pace.Of(k.exec[b-1]).Seconds() {
		b++
	}
	if b == size {
		return wait
	}
	return max(wait, seconds(float64(b-size)/l.rate))
}

const (
	// spacingBatches is how many batches spacingWait looks ahead.
	spacingBatches = 32
	// spacingRate is the multiple of the present rate that spacingWait plans for.
	spacingRate = 2
	// negligible is how many requests a batch may put at risk.
	negligible = 0.02
)

// spacingWait is how long a batch of size must still wait so that the next requests
// find a free instance; 0 if it need not wait. Where an execution takes more than
// half of the time to the deadline, the instances must start at even distances. For
// example two instances have t(4) = 120 ms, and every deadline is 195 ms after the
// arrival. A request can wait 75 ms for a full batch, a timer's slack included. One
// instance began 20 ms ago. If the other takes a lone request for 80 ms now,
// requests that come in the next 6 ms are late. If it starts in 26 ms, when the
// first has only 74 ms left, none is.
//
// spacingWait lets requests come at twice the present rate. Instances take them in
// full batches, in the order in which they become free. Each starts as late as
// possible: when its batch is full, or when its first request can wait no longer.
// Every instance that becomes free before this batch is done, and this batch's own
// instance after it, must be free by its latest start.
func (s *Shared) spacingWait(now time.Duration, k *kind, size int, l load) time.Duration {
	done := k.exec[size-1]
	t := turns{fill: 1e9 / max(spacingRate*l.rate, 1e-3)}
	for _, o := range s.fleet.kinds {
		if !has(o.lanes, l.lane) {
			continue
		}
		free := o.free.Len()
		if o == k.base() {
			free--
		}
		for ; free > 0 && t.taken < spacingBatches && t.served < done; free-- {
			t.take(0, o.maxWait(), o.full)
		}
	}
	next := done
	for _, b := range s.fleet.busy.All() {
		at, o := max(0, b.Until-now), s.fleet.members[b.Slot].kind
		if !has(o.lanes, l.lane) {
			continue
		}
		if t.taken >= spacingBatches || t.late > 0 {
			break
		}
		if at >= done {
			next = at
			break
		}
		t.take(at, o.maxWait(), o.full)
	}
	var beyond time.Duration
	if t.taken < spacingBatches && t.late == 0 {
		t.take(done, k.maxWait(), k.full)
		beyond = next - done // Waiting helps only once the next busy instance is free before this batch is done.
	}
	if t.late.Seconds()*l.rate <= negligible {
		return 0
	}
	// The minimum avoids a timer for every microsecond.
	return max(t.late+beyond, s.options.SLO/256)
}

// turns is the state of spacingWait's look ahead.
type turns struct {
	// served is the time up to which arrivals are in batches. taken counts the
	// batches.
	served time.Duration
	// fill is the time between arrivals, in ns.
	fill  float64
	taken int
	// late is how far the last instance was behind its latest start.
	late time.Duration
}

// take lets an instance that becomes free at the time at serve the next full batch.
// The batch's first request can wait for maxWait.
func (t *turns) take(at, maxWait time.Duration, full int) {
	t.taken++
	latest := t.served + max(0, maxWait-timerSlack)
	t.late = max(0, at-latest)
	filled := t.served + time.Duration(t.fill*float64(full))
	t.served = min(max(at, latest), filled)
}

// timerSlack lies between the end of a wait and the last possible start, for a
// timer that fires late.
const timerSlack = time.Millisecond
