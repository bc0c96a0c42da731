package batching

import (
	"slices"
	"time"
)

// batches are formed batches, first formed first. Each is a run of requests,
// earliest deadline first.
type batches struct {
	runs [][]waiter
	head int
	// disorder says that a batch may have an earlier deadline than one before
	// it; else the front has the earliest.
	disorder bool
	// spare are emptied runs, to be filled again.
	spare [][]waiter
}

func (b *batches) len() int            { return len(b.runs) - b.head }
func (b *batches) waiting() [][]waiter { return b.runs[b.head:] }

// push makes a batch of the first n requests of q.
func (b *batches) push(q *queue, n int) {
	var run []waiter
	if last := len(b.spare) - 1; last >= 0 {
		run, b.spare = b.spare[last][:0], b.spare[:last]
	}
	run = append(run, q.waiting()[:n]...)
	q.head += n
	if w := b.waiting(); len(w) == 0 {
		b.disorder = false
		b.runs, b.head = b.runs[:0], 0
	} else if run[0].due < w[len(w)-1][0].due {
		b.disorder = true
	}
	if b.head > 32 && b.head*2 >= len(b.runs) {
		b.runs = b.runs[:copy(b.runs, b.runs[b.head:])]
		b.head = 0
	}
	b.runs = append(b.runs, run)
}

// pop takes the front batch, at most limit of it, and appends its IDs to out.
func (b *batches) pop(limit int, out []RequestID) []RequestID {
	run := b.runs[b.head]
	n := min(limit, len(run))
	for _, w := range run[:n] {
		out = append(out, w.id)
	}
	b.cut(b.head, n)
	return out
}

// cut takes the first n requests off the i-th run, and the run away if it is
// empty then.
func (b *batches) cut(i, n int) {
	if run := b.runs[i]; n < len(run) {
		b.runs[i] = slices.Delete(run, 0, n)
		// What is left may be due later than the run behind.
		b.disorder = b.disorder || i+1 < len(b.runs) && b.runs[i+1][0].due < b.runs[i][0].due
		return
	}
	b.spare = append(b.spare, b.runs[i])
	if i == b.head {
		b.runs[i] = nil
		b.head++
		return
	}
	b.runs = slices.Delete(b.runs, i, i+1)
}

// before takes out the requests whose deadlines are before t and appends their
// IDs to out.
func (b *batches) before(t time.Duration, out []RequestID) []RequestID {
	for i := b.head; i < len(b.runs); {
		run := b.runs[i]
		n := 0
		for n < len(run) && run[n].due < t {
			out = append(out, run[n].id)
			n++
		}
		if n == 0 && !b.disorder {
			return out
		}
		if n > 0 {
			b.cut(i, n)
		}
		if n < len(run) || i < b.head {
			i++
		}
	}
	return out
}

// earliest is the earliest deadline.
func (b *batches) earliest() (at time.Duration, ok bool) {
	for _, run := range b.waiting() {
		if !ok || run[0].due < at {
			at, ok = run[0].due, true
		}
		if !b.disorder {
			break
		}
	}
	return at, ok
}

// remove takes out the request with that ID. Only a client that hung up leads
// here.
func (b *batches) remove(id RequestID) bool {
	for i := b.head; i < len(b.runs); i++ {
		switch j := slices.IndexFunc(b.runs[i], func(w waiter) bool { return w.id == id }); {
		case j < 0:
			continue
		case j == 0:
			b.cut(i, 1)
		default:
			b.runs[i] = slices.Delete(b.runs[i], j, j+1)
		}
		return true
	}
	return false
}
