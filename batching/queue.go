package batching

import (
	"slices"
	"sort"
	"time"
)

// waiter is a request in a queue; due is its deadline by the policy's clock.
type waiter struct {
	id  RequestID
	due time.Duration
}

// queue holds waiting requests, earliest deadline first. Deadlines mostly come
// in order, so that an insertion is an append; the front is taken off by moving
// head.
type queue struct {
	items []waiter
	head  int
}

func (q *queue) len() int          { return len(q.items) - q.head }
func (q *queue) at(i int) *waiter  { return &q.items[q.head+i] }
func (q *queue) waiting() []waiter { return q.items[q.head:] }

// add inserts w behind every request with an equal or earlier deadline.
func (q *queue) add(w waiter) {
	if n := len(q.items); n == q.head || w.due >= q.items[n-1].due {
		q.compact()
		q.items = append(q.items, w)
		return
	}
	all := q.waiting()
	i := sort.Search(len(all), func(i int) bool { return all[i].due > w.due })
	q.items = slices.Insert(q.items, q.head+i, w)
}

// compact moves the requests to the front once more is empty than used, so that
// the slice is not grown for ever.
func (q *queue) compact() {
	if q.head > 32 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		q.items = q.items[:n]
		q.head = 0
	}
}

// take removes n requests starting at the i-th and appends their IDs to out.
func (q *queue) take(i, n int, out []RequestID) []RequestID {
	if n == 0 {
		return out
	}
	for _, w := range q.waiting()[i : i+n] {
		out = append(out, w.id)
	}
	q.drop(i, n)
	return out
}

// drop removes n requests starting at the i-th.
func (q *queue) drop(i, n int) {
	if i == 0 {
		q.head += n
		return
	}
	q.items = slices.Delete(q.items, q.head+i, q.head+i+n)
}

// remove takes out the request with that ID. Only a client that hung up leads
// here, so a scan is cheap enough.
func (q *queue) remove(id RequestID) bool {
	i := slices.IndexFunc(q.waiting(), func(w waiter) bool { return w.id == id })
	if i < 0 {
		return false
	}
	q.drop(i, 1)
	return true
}

// drain empties the queue into a slice of its own.
func (q *queue) drain() []waiter {
	out := slices.Clone(q.waiting())
	q.items, q.head = q.items[:0], 0
	return out
}

// before returns the index of the first request whose deadline is not before t.
func (q *queue) before(t time.Duration) int {
	w := q.waiting()
	if len(w) == 0 || w[0].due >= t {
		return 0
	}
	return sort.Search(len(w), func(i int) bool { return w[i].due >= t })
}
