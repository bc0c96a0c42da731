package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// Up lets a ready or parked instance take batches, or changes its times, its config or its
// rate. A change does not affect an execution in progress.
func (r *Requests) Up(now time.Duration, in Peer) Ready {
	p, ok := r.peers[in.ID]
	switch {
	case !ok:
		p = &peer{up: true, idleSince: now, spare: now}
		r.place(in.ID, p)
		for i := 1; i < in.Config.Streams(); i++ {
			stream := &peer{of: p, spare: now}
			p.streams = append(p.streams, stream)
			r.place(batching.Stream(in.ID, i), stream)
		}
		r.ready++
		r.waking.Cold(&r.total, &r.record.Counts)
	case p.parked:
		p.up, p.parked, p.idleSince, p.spare = true, false, now, now
		r.ready++
		r.parked--
		r.waking.Woken(&r.total, &r.record.Counts)
	}
	p.Peer = in
	for i, stream := range p.streams {
		stream.Peer = in
		stream.ID = batching.Stream(in.ID, i+1)
	}
	batching.Up(r.options.Policy, TimeAt(now), in.Instance)
	r.act(now)
	return p
}

// place gives a peer a slot.
func (r *Requests) place(id cluster.InstanceID, p *peer) {
	p.slot = r.slot()
	r.slots[p.slot], r.peers[id] = p, p
}

// slot returns a free slot for a peer.
func (r *Requests) slot() int32 {
	if n := len(r.free); n > 0 {
		slot := r.free[n-1]
		r.free = r.free[:n-1]
		return slot
	}
	r.slots = append(r.slots, nil)
	return int32(len(r.slots) - 1)
}

// Park gives an instance no batches until Up. It returns false if the instance has a batch
// or if requests wait.
func (r *Requests) Park(now time.Duration, id cluster.InstanceID) bool {
	p, ok := r.peers[id]
	if !ok || !p.up || p.inFlight > 0 || r.Waiting() > 0 {
		return false
	}
	r.examine(p, now)
	p.up, p.parked = false, true
	r.ready--
	r.parked++
	batching.Down(r.options.Policy, TimeAt(now), &p.Instance)
	r.act(now)
	return true
}

// Down gives an instance no new batches. drained reports whether it has none in flight.
// Otherwise OnDrained is called when it has none.
func (r *Requests) Down(now time.Duration, id cluster.InstanceID) (drained bool) {
	p, ok := r.peers[id]
	if !ok {
		return true
	}
	if p.up {
		r.examine(p, now)
		p.up = false
		r.ready--
		batching.Down(r.options.Policy, TimeAt(now), &p.Instance)
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
	for _, x := range append([]*peer{p}, p.streams...) {
		delete(r.peers, x.ID)
		r.slots[x.slot] = nil
		r.free = append(r.free, x.slot)
	}
}

// Waiting returns the number of waiting requests.
func (r *Requests) Waiting() int { return r.options.Policy.Waiting() }

// Settled reports whether no request waits or is executed.
func (r *Requests) Settled() bool { return r.inFlight == 0 && r.Waiting() == 0 }

// Advance does nothing: requests come by events.
func (r *Requests) Advance(time.Duration) {}

// Total returns the counts since the beginning.
func (r *Requests) Total() Counts { return r.total }

// Finish counts waiting requests as rejected, and returns the record of the measured time.
func (r *Requests) Finish() *Record {
	r.waking.Cold(&r.total, &r.record.Counts)
	r.forgive(r.options.Window.To)
	r.ring.each(func(x request) { r.reject(r.options.Window.To, x.arrived, x.cold) })
	r.ring = ring{first: r.ring.next, next: r.ring.next}
	return &r.record
}
