package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Buffer is the policy of BATCH (§III-B): one buffer for the function gathers
// requests before the platform. A batch leaves the buffer when it has B requests or
// when its first request has waited for the timeout T, whether or not an instance
// is free. It is never filled up afterwards. Batches wait for a free instance in
// the order in which they left.
//
// B and T are Config.Batch and Timeout of the instance that came up or changed
// last. A new choice of the optimiser thus applies as soon as its first instance is
// up. An instance that takes less than a batch executes the first part; the rest
// stays at the front. BATCH assumes a platform that always has an instance and
// drops nothing. Here, as with every policy, a request is rejected once not even a
// batch of one could answer it in time.
type Buffer struct {
	options   Options
	clock     clock
	slots     Slots
	instances []Instance
	// idle has the slots of instances that execute nothing.
	idle Set
	// batch and timeout are B and T. batch is 0 until the first instance is up.
	batch   int
	timeout time.Duration
	fastest Fastest
	// buffer gathers requests; its first one came at since.
	buffer queue
	since  time.Duration
	formed batches
	// waiting counts the requests in buffer and formed.
	waiting int
	actions []Action
	ids     []RequestID
}

// NewBuffer returns BATCH's policy.
func NewBuffer(o Options) *Buffer { return &Buffer{options: o} }

// Add implements [Policy].
func (p *Buffer) Add(at time.Time, r Request) {
	now := p.clock.since(at)
	if p.buffer.len() == 0 {
		p.since = now
	}
	p.buffer.add(waiter{r.ID, p.clock.since(r.Deadline)})
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
	slot, known := p.slots.Give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, Instance{})
	}
	old := time.Duration(-1)
	if known {
		old = p.instances[slot].Exec[0]
	} else {
		p.idle.Add(slot)
	}
	p.instances[slot] = in
	p.batch, p.timeout = in.Config.Batch, in.Timeout
	p.fastest.Change(old, in.Exec[0])
}

// Down implements [Policy].
func (p *Buffer) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.Find(id)
	if !known {
		return
	}
	p.slots.Drop(id)
	p.idle.Remove(slot)
	p.fastest.Change(p.instances[slot].Exec[0], -1)
	p.instances[slot] = Instance{}
}

// Done implements [Policy].
func (p *Buffer) Done(_ time.Time, id cluster.InstanceID) {
	if slot, known := p.slots.Find(id); known {
		p.idle.Add(slot)
	}
}

// Actions implements [Policy].
func (p *Buffer) Actions(at time.Time) []Action {
	now := p.clock.since(at)
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	p.form(now)
	p.expire(now)
	for p.formed.len() > 0 {
		slot := p.idle.First()
		if slot < 0 {
			break
		}
		p.dispatch(slot)
	}
	return p.actions
}

// form makes full batches of the gathered requests. It also makes one of the
// remainder if its first request has waited for the timeout.
func (p *Buffer) form(now time.Duration) {
	if p.batch == 0 {
		return
	}
	for p.buffer.len() > 0 {
		n := p.buffer.len()
		if n < p.batch && now < p.since+p.timeout {
			return
		}
		p.formed.push(&p.buffer, min(n, p.batch))
	}
}

// dispatch gives the instance as much of the front batch as it takes.
func (p *Buffer) dispatch(slot int) {
	in := &p.instances[slot]
	from := len(p.ids)
	p.ids = p.formed.pop(in.Config.Batch, p.ids)
	p.waiting -= len(p.ids) - from
	p.idle.Remove(slot)
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[from:len(p.ids):len(p.ids)]})
}

// expire rejects the requests that even a batch of one, started now, would answer
// too late.
func (p *Buffer) expire(now time.Duration) {
	from, soonest := len(p.ids), now+p.fastest.Least()
	p.ids = p.formed.before(soonest, p.ids)
	p.ids = p.buffer.take(0, p.buffer.before(soonest), p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= len(p.ids) - from
}

// Next implements [Policy].
func (p *Buffer) Next() (time.Time, bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	// One past the last instant at which a request could still be served.
	due, formed := p.formed.first()
	if p.buffer.len() > 0 {
		if d := p.buffer.at(0).due; !formed || d < due {
			due = d
		}
	}
	at := due - p.fastest.Least() + 1
	if p.batch > 0 && p.buffer.len() > 0 {
		at = min(at, p.since+p.timeout)
	}
	return p.clock.time(at), true
}
