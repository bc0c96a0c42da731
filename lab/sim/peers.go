package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Up has a ready instance take batches, also one that was parked, or changes its
// times, its config or its rate. Its execution goes on as it began.
func (r *Requests) Up(now time.Duration, in Peer) Ready {
	p, ok := r.peers[in.ID]
	switch {
	case !ok:
		p = &peer{up: true, idleSince: now, slot: r.slot()}
		r.slots[p.slot] = p
		r.peers[in.ID] = p
		r.ready++
		r.waking.Cold(&r.total, &r.record.Counts)
	case p.parked:
		p.up, p.parked, p.idleSince = true, false, now
		r.ready++
		r.parked--
		r.waking.Woken(&r.total, &r.record.Counts)
	}
	p.Peer = in
	r.options.Policy.Up(TimeAt(now), in.Instance)
	r.act(now)
	return p
}

// slot is a free place for a peer.
func (r *Requests) slot() int32 {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.slots = append(r.slots, nil)
	return int32(len(r.slots) - 1)
}

// Park gives an instance nothing until it is up again, and tells whether it has: one
// that has a batch, or for which requests wait, is not parked.
func (r *Requests) Park(now time.Duration, id cluster.InstanceID) bool {
	p, ok := r.peers[id]
	if !ok || !p.up || p.inFlight > 0 || r.Waiting() > 0 {
		return false
	}
	p.up, p.parked = false, true
	r.ready--
	r.parked++
	r.options.Policy.Down(TimeAt(now), id)
	r.act(now)
	return true
}

// Down gives an instance nothing new. It tells whether it has nothing in flight;
// else OnDrained is called when that is so.
func (r *Requests) Down(now time.Duration, id cluster.InstanceID) (drained bool) {
	p, ok := r.peers[id]
	if !ok {
		return true
	}
	if p.up {
		p.up = false
		r.ready--
		r.options.Policy.Down(TimeAt(now), id)
		r.act(now)
	}
	if p.parked {
		p.parked = false
		if r.parked--; r.parked == 0 {
			r.waking.Cold(&r.total, &r.record.Counts)
		}
	}
	return p.inFlight == 0
}

// Forget drops an instance that is down and drained.
func (r *Requests) Forget(id cluster.InstanceID) {
	p, ok := r.peers[id]
	if !ok || p.up || p.inFlight > 0 {
		return
	}
	delete(r.peers, id)
	r.slots[p.slot] = nil
	r.free = append(r.free, p.slot)
}

// Waiting is how many requests wait.
func (r *Requests) Waiting() int { return r.options.Policy.Waiting() }

// Settled reports whether nothing waits or is executed.
func (r *Requests) Settled() bool { return r.inFlight == 0 && r.Waiting() == 0 }

// Advance does nothing: requests come by events.
func (r *Requests) Advance(time.Duration) {}

// Total counts everything since the beginning.
func (r *Requests) Total() Counts { return r.total }

// Finish counts what still waits as rejected, and returns what was measured.
func (r *Requests) Finish() *Record {
	r.waking.Cold(&r.total, &r.record.Counts)
	r.ring.each(func(x request) { r.reject(x.arrived >= r.options.Window.From) })
	r.ring = ring{first: r.ring.next, next: r.ring.next}
	return &r.record
}
