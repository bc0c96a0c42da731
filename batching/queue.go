package batching

import (
	"cmp"
	"slices"
	"time"
)

// queue holds waiting requests, earliest deadline first. Deadlines mostly come
// in order, so that an insertion is an append; the front is taken off by moving
// head.
type queue struct {
	items []Request
	head  int
}

func (q *queue) len() int           { return len(q.items) - q.head }
func (q *queue) at(i int) *Request  { return &q.items[q.head+i] }
func (q *queue) waiting() []Request { return q.items[q.head:] }

// add inserts r behind every request with an equal or earlier deadline.
func (q *queue) add(r Request) {
	w := q.waiting()
	if n := len(w); n == 0 || !r.Deadline.Before(w[n-1].Deadline) {
		q.compact()
		q.items = append(q.items, r)
		return
	}
	i, _ := slices.BinarySearchFunc(w, r, func(a, b Request) int {
		if c := a.Deadline.Compare(b.Deadline); c != 0 {
			return c
		}
		return -1
	})
	q.items = slices.Insert(q.items, q.head+i, r)
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
	for _, r := range q.waiting()[i : i+n] {
		out = append(out, r.ID)
	}
	if i == 0 {
		q.head += n
		return out
	}
	q.items = slices.Delete(q.items, q.head+i, q.head+i+n)
	return out
}

// remove takes out the request with that ID. Only a client that hung up leads
// here, so a scan is cheap enough.
func (q *queue) remove(id RequestID) bool {
	i := slices.IndexFunc(q.waiting(), func(r Request) bool { return r.ID == id })
	switch {
	case i < 0:
		return false
	case i == 0:
		q.head++
		return true
	}
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	return true
}

// drain empties the queue into a slice of its own.
func (q *queue) drain() []Request {
	out := slices.Clone(q.waiting())
	q.items, q.head = q.items[:0], 0
	return out
}

// before returns the index of the first request whose deadline is not before t.
func (q *queue) before(t time.Time) int {
	i, _ := slices.BinarySearchFunc(q.waiting(), t, func(r Request, t time.Time) int {
		return cmp.Or(r.Deadline.Compare(t), 1)
	})
	return i
}
