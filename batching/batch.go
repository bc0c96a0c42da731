package batching

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Buffer is the policy of BATCH (§III-B): one buffer for the function gathers
// requests before the platform. A batch leaves it when B requests are there or
// the first of them has waited for the timeout T, whether or not an instance is
// free; it is never filled up afterwards. Batches wait for a free instance in
// the order in which they left.
//
// B and T are the Config.Batch and the Timeout of the instance that was brought
// up or changed last, so that a new choice of the optimiser holds for the buffer
// from its first instance on. An instance that takes less than a batch executes
// its first part; the rest stays at the front. BATCH assumes a platform that
// always has an instance and drops nothing. Here a request is rejected once not
// even a batch of one could answer it in time, as with every policy.
type Buffer struct {
	options   Options
	slots     slots
	instances []Instance
	// idle are the slots of instances that execute nothing.
	idle set
	// batch and timeout are B and T; batch is 0 until an instance came.
	batch   int
	timeout time.Duration
	fastest time.Duration
	// buffer gathers; its first request came at since.
	buffer queue
	since  time.Time
	formed batches
	// waiting counts the requests in buffer and formed.
	waiting int
	actions []Action
	ids     []RequestID
}

// NewBuffer returns BATCH's policy.
func NewBuffer(o Options) *Buffer { return &Buffer{options: o} }

// Add implements [Policy].
func (p *Buffer) Add(now time.Time, r Request) {
	if p.buffer.len() == 0 {
		p.since = now
	}
	p.buffer.add(r)
	p.waiting++
}

// Cancel implements [Policy].
func (p *Buffer) Cancel(_ time.Time, id RequestID) bool {
	found := p.buffer.remove(id) || p.formed.remove(id)
	if found {
		p.waiting--
	}
	return found
}

// Waiting implements [Policy].
func (p *Buffer) Waiting() int { return p.waiting }

// Up implements [Policy].
func (p *Buffer) Up(_ time.Time, in Instance) {
	if limit := p.options.MaxBatch; limit > 0 && in.Config.Batch > limit {
		in.Config.Batch = limit
	}
	slot, known := p.slots.give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, Instance{})
	}
	p.instances[slot] = in
	if !known {
		p.idle.add(slot)
	}
	p.batch, p.timeout = in.Config.Batch, in.Timeout
	p.measureFastest()
}

// Down implements [Policy].
func (p *Buffer) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.find(id)
	if !known {
		return
	}
	p.slots.drop(id)
	p.idle.remove(slot)
	p.instances[slot] = Instance{}
	p.measureFastest()
}

// Done implements [Policy].
func (p *Buffer) Done(_ time.Time, id cluster.InstanceID) {
	if slot, known := p.slots.find(id); known {
		p.idle.add(slot)
	}
}

// Actions implements [Policy].
func (p *Buffer) Actions(now time.Time) []Action {
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	p.form(now)
	p.expire(now)
	for p.formed.len() > 0 {
		slot := p.idle.first()
		if slot < 0 {
			break
		}
		p.dispatch(slot)
	}
	return p.actions
}

// form makes batches of what has gathered: full ones, and what is left if its
// first request has waited for the timeout.
func (p *Buffer) form(now time.Time) {
	if p.batch == 0 {
		return
	}
	for p.buffer.len() > 0 {
		n := p.buffer.len()
		if n < p.batch && now.Before(p.since.Add(p.timeout)) {
			return
		}
		p.formed.push(&p.buffer, min(n, p.batch))
	}
}

// dispatch gives the front batch to the instance, as much of it as that takes.
func (p *Buffer) dispatch(slot int) {
	in := &p.instances[slot]
	from := len(p.ids)
	p.ids = p.formed.pop(in.Config.Batch, p.ids)
	p.waiting -= len(p.ids) - from
	p.idle.remove(slot)
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[from:len(p.ids):len(p.ids)]})
}

// expire rejects what not even a batch of one that starts now could answer.
func (p *Buffer) expire(now time.Time) {
	from, soonest := len(p.ids), now.Add(p.fastest)
	p.ids = p.formed.before(soonest, p.ids)
	p.ids = p.buffer.take(0, p.buffer.before(soonest), p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= len(p.ids) - from
}

// Next implements [Policy].
func (p *Buffer) Next() (at time.Time, ok bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	// One past the last instant at which a request could still be served.
	due, ok := p.formed.earliest()
	if p.buffer.len() > 0 {
		if d := p.buffer.at(0).Deadline; !ok || d.Before(due) {
			due = d
		}
	}
	at = due.Add(-p.fastest + 1)
	if p.batch > 0 && p.buffer.len() > 0 {
		if leaves := p.since.Add(p.timeout); leaves.Before(at) {
			at = leaves
		}
	}
	return at, true
}

func (p *Buffer) measureFastest() {
	p.fastest = 0
	for i := range p.instances {
		if in := &p.instances[i]; in.Exec != nil && (p.fastest == 0 || in.Exec[0] < p.fastest) {
			p.fastest = in.Exec[0]
		}
	}
}

// batches are formed batches, first formed first. Each is a run of requests,
// earliest deadline first.
type batches struct {
	runs [][]Request
	head int
	// disorder says that a batch may have an earlier deadline than one before
	// it; else the front has the earliest.
	disorder bool
	// spare are emptied runs, to be filled again.
	spare [][]Request
}

func (b *batches) len() int             { return len(b.runs) - b.head }
func (b *batches) waiting() [][]Request { return b.runs[b.head:] }

// push makes a batch of the first n requests of q.
func (b *batches) push(q *queue, n int) {
	var run []Request
	if last := len(b.spare) - 1; last >= 0 {
		run, b.spare = b.spare[last][:0], b.spare[:last]
	}
	run = append(run, q.waiting()[:n]...)
	q.head += n
	if w := b.waiting(); len(w) == 0 {
		b.disorder = false
		b.runs, b.head = b.runs[:0], 0
	} else if run[0].Deadline.Before(w[len(w)-1][0].Deadline) {
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
	for _, r := range run[:n] {
		out = append(out, r.ID)
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
		b.disorder = b.disorder || i+1 < len(b.runs) && b.runs[i+1][0].Deadline.Before(b.runs[i][0].Deadline)
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
func (b *batches) before(t time.Time, out []RequestID) []RequestID {
	for i := b.head; i < len(b.runs); {
		run := b.runs[i]
		n := 0
		for n < len(run) && run[n].Deadline.Before(t) {
			out = append(out, run[n].ID)
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
func (b *batches) earliest() (at time.Time, ok bool) {
	for _, run := range b.waiting() {
		if d := run[0].Deadline; !ok || d.Before(at) {
			at, ok = d, true
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
		switch j := slices.IndexFunc(b.runs[i], func(r Request) bool { return r.ID == id }); {
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
