package batching

import (
	"slices"
	"sort"
	"time"
)

// waiter is a request in a queue; due is its deadline by the policy's clock.
type waiter struct {
	id    RequestID
	due   time.Duration
	class uint8
	// hold is until when a policy may let it wait beside an idle instance: due, or earlier
	// for a patient request. It may be answered much later than the objective, but is worth no
	// more than others: held for its whole patience, it would wait half a minute for a second
	// one.
	hold time.Duration
	work
}

// queue holds waiting requests, earliest deadline first. Deadlines mostly come in
// order, so most insertions are appends. Requests leave at the front.
//
// Requests that waited for a cold start are due much later than requests that
// arrive after it. There may be thousands, and every new request goes in front of
// them. So the queue is a gap buffer: it keeps a gap where it last inserted. The
// next request mostly goes there, and nothing moves.
type queue struct {
	// items[head:gap] and, behind the gap, items[end:] are the requests. If the
	// second part is empty, there is no gap: gap and end are len(items). If the
	// first part is empty, head and gap are 0.
	items          []waiter
	head, gap, end int
}

func (q *queue) len() int { return q.gap - q.head + len(q.items) - q.end }

func (q *queue) at(i int) *waiter {
	if i += q.head; i >= q.gap {
		i += q.end - q.gap
	}
	return &q.items[i]
}

// parts returns n requests from the i-th on: those before and those behind the gap.
func (q *queue) parts(i, n int) (before, behind []waiter) {
	front := q.gap - q.head
	k := min(n, max(0, front-i))
	if k > 0 {
		before = q.items[q.head+i : q.head+i+k]
	}
	if n > k {
		from := q.end + max(0, i-front)
		behind = q.items[from : from+n-k]
	}
	return before, behind
}

// add inserts w behind every request with an equal or earlier deadline.
func (q *queue) add(w waiter) {
	if n := len(q.items); n > q.end || n > q.head {
		if w.due < q.items[n-1].due {
			q.insert(w)
			return
		}
		q.compact()
	}
	if q.end < len(q.items) {
		q.items = append(q.items, w)
		return
	}
	q.items = append(q.items, w)
	q.gap, q.end = len(q.items), len(q.items)
}

// compact closes the gap if no request lies before it. Once more is empty than
// used, it moves the requests to the beginning, so the slice does not grow for ever.
func (q *queue) compact() {
	if q.head == q.gap {
		q.head, q.gap, q.end = q.end, len(q.items), len(q.items)
	}
	n := q.len()
	empty := len(q.items) - n
	if empty <= 32 || empty < n || q.gap < q.end && len(q.items) < cap(q.items) {
		return
	}
	k := copy(q.items, q.items[q.head:q.gap])
	copy(q.items[k:], q.items[q.end:])
	q.items = q.items[:n]
	q.head, q.gap, q.end = 0, n, n
}

// insert puts w in front of requests that are due later.
func (q *queue) insert(w waiter) {
	i := q.before(w.due + 1)
	if i == 0 && q.head > 0 && q.end == len(q.items) {
		q.head, q.gap, q.end = 0, 0, q.head // The empty part at the beginning is a gap.
	}
	if q.gap == q.end {
		q.widen()
	}
	switch front := q.gap - q.head; {
	case i < front:
		n := front - i
		q.gap, q.end = q.gap-n, q.end-n
		copy(q.items[q.end:], q.items[q.gap:q.gap+n])
	case i > front:
		n := i - front
		copy(q.items[q.gap:], q.items[q.end:q.end+n])
		q.gap, q.end = q.gap+n, q.end+n
	}
	q.items[q.gap] = w
	q.gap++
}

// widen makes a gap where there is none. It uses the empty part at the beginning if
// that is large enough to pay for moving the requests before the gap. Otherwise it
// grows the slice.
func (q *queue) widen() {
	front := q.gap - q.head
	if q.head > 32 && q.head >= front/2 {
		copy(q.items, q.items[q.head:q.gap])
		q.head, q.gap = 0, front
		return
	}
	n := q.len()
	items := make([]waiter, n+n/2+32)
	copy(items, q.items[q.head:q.gap])
	end := len(items) - (n - front)
	copy(items[end:], q.items[q.end:])
	q.items, q.head, q.gap, q.end = items, 0, front, end
}

// take removes n requests starting at the i-th and appends their IDs to out.
func (q *queue) take(i, n int, out []RequestID) []RequestID {
	if n == 0 {
		return out
	}
	before, behind := q.parts(i, n)
	for _, w := range before {
		out = append(out, w.id)
	}
	for _, w := range behind {
		out = append(out, w.id)
	}
	q.drop(i, n)
	return out
}

// drop removes n requests starting at the i-th. On each side of the gap it moves
// the requests before them or those behind them, whichever are fewer.
func (q *queue) drop(i, n int) {
	front := q.gap - q.head
	k := min(n, max(0, front-i))
	switch behind := front - i - k; {
	case k == 0:
	case i <= behind:
		copy(q.items[q.head+k:], q.items[q.head:q.head+i])
		q.head += k
	default:
		copy(q.items[q.head+i:], q.items[q.head+i+k:q.gap])
		q.gap -= k
	}
	n, i = n-k, max(0, i-front)
	switch behind := len(q.items) - q.end - i - n; {
	case n == 0:
	case i <= behind:
		copy(q.items[q.end+n:], q.items[q.end:q.end+i])
		q.end += n
	default:
		copy(q.items[q.end+i:], q.items[q.end+i+n:])
		q.items = q.items[:len(q.items)-n]
	}
	if q.head == q.gap {
		q.head, q.gap = 0, 0
	}
	if q.end == len(q.items) {
		q.items, q.end = q.items[:q.gap], q.gap
	}
}

// remove removes the request with that ID. It is called when a client hangs up, for the requests of one size near the
// front, and for those of a function that floods, near the end. So it scans from both ends.
func (q *queue) remove(id RequestID) bool {
	for i, j := 0, q.len()-1; i <= j; i, j = i+1, j-1 {
		if q.at(i).id == id {
			q.drop(i, 1)
			return true
		}
		if q.at(j).id == id {
			q.drop(j, 1)
			return true
		}
	}
	return false
}

// drain empties the queue into a slice of its own.
func (q *queue) drain() []waiter {
	before, behind := q.parts(0, q.len())
	out := slices.Concat(before, behind)
	q.items, q.head, q.gap, q.end = q.items[:0], 0, 0, 0
	return out
}

// before returns the index of the first request whose deadline is not before t. It
// looks beside the gap first, because the index mostly lies there.
func (q *queue) before(t time.Duration) int {
	front, back := q.items[q.head:q.gap], q.items[q.end:]
	if n := len(front); n > 0 && front[n-1].due >= t {
		if front[0].due >= t {
			return 0
		}
		return sort.Search(n-1, func(i int) bool { return front[i].due >= t })
	}
	if len(back) == 0 || back[0].due >= t {
		return len(front)
	}
	return len(front) + sort.Search(len(back), func(i int) bool { return back[i].due >= t })
}

// hold is the earliest hold of the first n requests.
func (q *queue) hold(n int) time.Duration {
	first := farthest
	for i := range n {
		first = min(first, q.at(i).hold)
	}
	return first
}
