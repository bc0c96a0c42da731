package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
)

// ring holds the requests that are in no batch yet, by their consecutive IDs.
type ring struct {
	// slots has request id at index id modulo its length, a power of two.
	slots []request
	// first is the oldest held ID, next the ID of the next request.
	first, next batching.RequestID
}

// request is a waiting request.
type request struct {
	arrived time.Duration
	cold    bool
	held    bool
}

// add adds a request that comes now and returns its ID.
func (r *ring) add(now time.Duration, cold bool) batching.RequestID {
	if int(r.next-r.first) == len(r.slots) {
		r.grow()
	}
	id := r.next
	r.next++
	r.slots[int(id)&(len(r.slots)-1)] = request{arrived: now, cold: cold, held: true}
	return id
}

// grow doubles the slots.
func (r *ring) grow() {
	slots := make([]request, max(64, 2*len(r.slots)))
	for id := r.first; id < r.next; id++ {
		slots[int(id)&(len(slots)-1)] = r.slots[int(id)&(len(r.slots)-1)]
	}
	r.slots = slots
}

// take removes a request. ok is false if the ring does not hold it.
func (r *ring) take(id batching.RequestID) (request, bool) {
	if id < r.first || id >= r.next {
		return request{}, false
	}
	slot := &r.slots[int(id)&(len(r.slots)-1)]
	if !slot.held {
		return request{}, false
	}
	slot.held = false
	out := *slot
	for r.first < r.next && !r.slots[int(r.first)&(len(r.slots)-1)].held {
		r.first++
	}
	return out, true
}

// each calls f with every held request, the oldest first.
func (r *ring) each(f func(request)) {
	for id := r.first; id < r.next; id++ {
		if x := r.slots[int(id)&(len(r.slots)-1)]; x.held {
			f(x)
		}
	}
}
