package sim

import "time"

// Event is a future event. Kind is its kind, A and B are its subjects; only the simulation
// knows their meaning.
type Event struct {
	At   time.Duration
	Kind uint8
	A, B int32
}

// plannedEvent is an event in a queue. It is small: with thousands of instances, reading
// the events takes most of the queue's time.
type plannedEvent struct {
	at time.Duration
	// order is the number of the event in the order of planning, for events at the same
	// time. Its last eight bits are the kind.
	order uint64
	a, b  int32
}

// kindBits is the number of bits of a kind.
const kindBits = 8

// before reports whether e happens before o.
func (e *plannedEvent) before(o *plannedEvent) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// EventQueue holds the future events. Its zero value is empty. After it has reached its
// largest size, it allocates nothing.
type EventQueue struct {
	// heap is a heap in which each event has up to four children, which halves the depth
	// of a binary one.
	heap []plannedEvent
	// hole is set if the first event of heap has happened. The next planned event takes
	// its place. Most events plan another one, so most need one walk down instead of a
	// removal and an insertion.
	hole  bool
	count uint64
}

// arity is the maximum number of an event's children.
const arity = 4

// Len returns the number of future events.
func (q *EventQueue) Len() int {
	if q.hole {
		return len(q.heap) - 1
	}
	return len(q.heap)
}

// Plan adds an event. An event in the past happens next.
func (q *EventQueue) Plan(at time.Duration, kind uint8, a, b int32) {
	q.count++
	e := plannedEvent{at: at, order: q.count<<kindBits | uint64(kind), a: a, b: b}
	if q.hole {
		q.hole = false
		q.down(e)
		return
	}
	q.heap = append(q.heap, e)
	q.up(len(q.heap) - 1)
}

// Next removes and returns the earliest event. ok is false if there is none.
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

// down puts e at the top and moves it down to its place.
func (q *EventQueue) down(e plannedEvent) {
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

// up moves the i-th event up to its place.
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
