package batching

import (
	"slices"
	"time"
)

// batches holds formed batches in the order in which they were formed. Each batch
// is a run of requests, earliest deadline first. A batch that was formed later may
// be due earlier: requests that waited for a cold start have later deadlines.
type batches struct {
	// runs has the runs by slot. Slot 0 is the sentinel of the linked list.
	runs []formed
	// earliest has the slots by the deadline of their first request.
	earliest Ranking[time.Duration]
	// free has the slots whose runs are empty, for reuse.
	free []int
}

// formed is a run, with the slots of the runs formed right before and after it. order
// numbers the runs of all lanes.
type formed struct {
	waiting       []waiter
	order         uint64
	before, after int
}

func (b *batches) len() int { return b.earliest.Len() }

// push makes a batch of the requests in both parts together.
func (b *batches) push(order uint64, before, behind []waiter) {
	if len(b.runs) == 0 {
		b.runs = append(b.runs, formed{})
	}
	slot := len(b.runs)
	if last := len(b.free) - 1; last >= 0 {
		slot, b.free = b.free[last], b.free[:last]
	} else {
		b.runs = append(b.runs, formed{})
	}
	run, last := &b.runs[slot], b.runs[0].before
	run.waiting = append(append(run.waiting[:0], before...), behind...)
	run.order, run.before, run.after = order, last, 0
	b.runs[last].after, b.runs[0].before = slot, slot
	b.earliest.Set(slot, run.waiting[0].due)
}

// front returns the order of the front batch.
func (b *batches) front() (order uint64, ok bool) {
	if b.len() == 0 {
		return 0, false
	}
	return b.runs[b.runs[0].after].order, true
}

// drain removes all batches and returns them in order.
func (b *batches) drain() (all []formed) {
	if b.len() > 0 {
		for slot := b.runs[0].after; slot > 0; slot = b.runs[slot].after {
			all = append(all, b.runs[slot])
		}
	}
	*b = batches{}
	return all
}

// pop takes at most limit requests of the front batch and appends their IDs to out.
func (b *batches) pop(limit int, out []RequestID) []RequestID {
	slot := b.runs[0].after
	run := b.runs[slot].waiting
	n := min(limit, len(run))
	for _, w := range run[:n] {
		out = append(out, w.id)
	}
	b.cut(slot, 0, n)
	return out
}

// cut removes n requests from a run, starting at the i-th. It removes the run if
// that empties it.
func (b *batches) cut(slot, i, n int) {
	run := &b.runs[slot]
	if run.waiting = slices.Delete(run.waiting, i, i+n); len(run.waiting) > 0 {
		b.earliest.Set(slot, run.waiting[0].due)
		return
	}
	b.earliest.Remove(slot)
	b.runs[run.before].after, b.runs[run.after].before = run.after, run.before
	b.free = append(b.free, slot)
}

// before removes the requests whose deadlines are before t and appends their IDs to
// out.
func (b *batches) before(t time.Duration, out []RequestID) []RequestID {
	for b.len() > 0 {
		slot, due := b.earliest.First()
		if due >= t {
			break
		}
		n := 0
		for _, w := range b.runs[slot].waiting {
			if w.due >= t {
				break
			}
			out = append(out, w.id)
			n++
		}
		b.cut(slot, 0, n)
	}
	return out
}

// first returns the earliest deadline.
func (b *batches) first() (at time.Duration, ok bool) {
	if b.len() == 0 {
		return 0, false
	}
	_, at = b.earliest.First()
	return at, true
}

// remove removes the request with that ID. It is called only when a client hangs
// up.
func (b *batches) remove(id RequestID) bool {
	if b.len() == 0 {
		return false
	}
	for slot := b.runs[0].after; slot > 0; slot = b.runs[slot].after {
		if i := slices.IndexFunc(b.runs[slot].waiting, func(w waiter) bool { return w.id == id }); i >= 0 {
			b.cut(slot, i, 1)
			return true
		}
	}
	return false
}
