package sim

import "time"

// Event is something that will happen. Kind says what, A and B to whom; only the
// simulation knows what they mean.
type Event struct {
	At   time.Duration
	Kind uint8
	A, B int32
}

// plannedEvents is an event in a queue, in as little room as it needs: with thousands of
// instances it is reading them that takes the time.
type plannedEvents struct {
	at time.Duration
	// order is when it was planned, to tell apart what happens at once, and in the
	// last eight bits of what kind it is.
	order uint64
	a, b  int32
}

// kindBits is how many bits a kind has.
const kindBits = 8

// before is the order in which events happen.
func (e *plannedEvents) before(o *plannedEvents) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// EventQueue holds the events to come. Its zero value is empty. Once it is as large as
// it gets, it allocates nothing.
type EventQueue struct {
	// heap is a heap in which each event has up to four below it, which halves
	// the depth of a binary one.
	heap []plannedEvents
	// hole: the first of heap has happened. The next one planned takes its place:
	// most events plan one like them, so most take one walk down and not a removal
	// and an insertion.
	hole  bool
	count uint64
}

// arity is how many events are below one.
const arity = 4

// Len is how many events are still to come.
func (q *EventQueue) Len() int {
	if q.hole {
		return len(q.heap) - 1
	}
	return len(q.heap)
}

// Plan adds an event. One in the past happens at once, as the next.
func (q *EventQueue) Plan(at time.Duration, kind uint8, a, b int32) {
	q.count++
	e := plannedEvents{at: at, order: q.count<<kindBits | uint64(kind), a: a, b: b}
	if q.hole {
		q.hole = false
		q.down(e)
		return
	}
	q.heap = append(q.heap, e)
	q.up(len(q.heap) - 1)
}

// Next takes the earliest event out; false if there is none.
func (q *EventQueue) Next() (Event, bool) {
	if q.hole {
		q.fill()
	}
	if len(q.heap) == 0 {
		return Event{}, false
	}
	q.hole = true
	e := &q.heap[0]
	return Event{At: e.at, Kind: uint8(e.order), A: e.a, B: e.b}, true
}

// fill closes the hole with the last event.
func (q *EventQueue) fill() {
	q.hole = false
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.down(e)
	}
}

// down puts e in the first place and lets it sink to where it belongs.
func (q *EventQueue) down(e plannedEvents) {
	h, i := q.heap, 0
	for {
		child := i*arity + 1
		if child >= len(h) {
			break
		}
		least := child
		for k := child + 1; k < min(child+arity, len(h)); k++ {
			if h[k].before(&h[least]) {
				least = k
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

// up lets the i-th event rise to where it belongs.
func (q *EventQueue) up(i int) {
	h, e := q.heap, q.heap[i]
	for i > 0 {
		parent := (i - 1) / arity
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}
