package batching

import "time"

// patience is how long a kind's next batch waits to become larger: until then,
// as long as head is its first request.
type patience struct {
	head  RequestID
	until time.Duration
}

// hold decides whether the batch that starts at the from-th request waits to
// fill, and until when. It holds all there is behind that request. Its window
// closes at d−t(b+1): later, one more would make its first request late. Within
// it, three things are worth waiting for: a batch that the load needs, fewer
// exchanges for a busy function (both in worth), and an instance for those who
// come next (in gap).
func (s *Shared) hold(now time.Duration, k *kind, from, size int) (until time.Duration, hold bool) {
	if size >= k.batch || from+size < s.queue.len() {
		return 0, false
	}
	head := s.queue.at(from)
	window := head.due - k.exec[size] - timerSlack
	if now >= window {
		return 0, false
	}
	rate := s.arrivals.at(now)
	if k.patience.head != head.id {
		k.patience = patience{head.id, now + s.worth(k, size, rate)}
	}
	if until = k.patience.until; until <= now {
		until = now + s.gap(now, k, size, rate)
	}
	until = min(window, until)
	return until, until > now
}

// worth is how long a batch should wait that has size requests.
//
// At a rate λ, each instance must serve its part of it: λ/C of what it serves in
// full batches, where C is what all serve so. The least b with
// b/t(b) ≥ λ/C·(full/t(full)) is waited for, as long as the missing requests
// take to come. For example two instances with t(1) = 60 ms and t(8) = 100 ms
// serve 160 requests/s; at 60, 30 each, b = 2 with t(2) = 66 ms is enough and b = 1
// (17/s) is not: a lone request waits 17 ms for the second.
//
// A function whose load is above half of C is busy: its batches wait for a
// fiftieth of the SLO. Every exchange costs provider and instance processor time
// that t(b) does not contain, so larger batches serve more.
func (s *Shared) worth(k *kind, size int, rate float64) (wait time.Duration) {
	need := rate / s.fleet.capacity * k.rate
	if 2*rate > s.fleet.capacity {
		wait = s.options.SLO / 50
	}
	b := size
	for b < k.batch && float64(b) < need*k.exec[b-1].Seconds() {
		b++
	}
	if b == size {
		return wait
	}
	return max(wait, seconds(float64(b-size)/rate))
}

const (
	// foresight is how many batches gap looks ahead.
	foresight = 32
	// prepared is for how many times the present rate gap leaves room.
	prepared = 2
	// negligible is how many requests may be put at risk by a batch.
	negligible = 0.02
)

// gap is how long a batch of size must still wait so that it leaves an instance
// for those who come next; 0 if it need not. The instances must follow each
// other evenly where t is above half of the objective. Of two with t(4) = 120 ms
// and an objective of 195 ms, a request can wait 75 ms for a full batch, a timer's
// slack included. One instance has begun 20 ms ago. If the other takes a lone
// request for 80 ms now, whoever comes in the next 6 ms is late. In 26 ms, when
// the first has only 74 ms left, nobody is.
//
// The look ahead lets requests come at twice the rate. Instances take them in
// full batches, in the order in which they are free, each as late as possible:
// when its batch is full or its first request can wait no longer. No instance
// may be free only after that, until this batch is done, too, and its instance
// takes its turn.
func (s *Shared) gap(now time.Duration, k *kind, size int, rate float64) time.Duration {
	done := k.exec[size-1]
	t := turns{fill: 1e9 / max(prepared*rate, 1e-3)}
	for _, o := range s.fleet.kinds {
		free := o.free.Len()
		if o == k {
			free--
		}
		for ; free > 0 && t.taken < foresight && t.served < done; free-- {
			t.take(0, s.patient(o), o.full)
		}
	}
	next := done
	for _, b := range s.fleet.busy.All() {
		at := max(0, b.Until-now)
		if t.taken >= foresight || t.late > 0 {
			break
		}
		if at >= done {
			next = at
			break
		}
		o := s.fleet.members[b.Slot].kind
		t.take(at, s.patient(o), o.full)
	}
	var beyond time.Duration
	if t.taken < foresight && t.late == 0 {
		t.take(done, s.patient(k), k.full)
		beyond = next - done // Time brings only the one behind it nearer.
	}
	if t.late.Seconds()*rate <= negligible {
		return 0
	}
	// Not for every microsecond a timer.
	return max(t.late+beyond, s.options.SLO/256)
}

// turns is a look ahead: requests that came before served are in batches.
type turns struct {
	served time.Duration
	// fill is the time between arrivals, in ns.
	fill  float64
	taken int
	// late is by how much the first instance is late that is.
	late time.Duration
}

// take lets an instance that is free at serve the next full batch, whose first
// request can wait for patient.
func (t *turns) take(at, patient time.Duration, full int) {
	t.taken++
	latest := t.served + max(0, patient-timerSlack)
	t.late = max(0, at-latest)
	filled := t.served + time.Duration(t.fill*float64(full))
	t.served = min(max(at, latest), filled)
}

// timerSlack is kept between the end of a wait and the last possible start, for
// a timer that fires late.
const timerSlack = time.Millisecond
