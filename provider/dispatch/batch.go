package dispatch

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// batch is what one exchange carries.
type batch struct {
	instance cluster.InstanceID
	link     *link
	// policy is the one that sent it.
	policy batching.Policy
	// limit is the most that the instance executes at once.
	limit int
	// least is how long a batch of one takes on the instance.
	least time.Duration
	calls []*call
	sent  time.Time
}

// delegate gives every batch a leader: the batch with own is returned, for the
// caller to lead; of every other, the first member is woken.
func (d *Dispatcher) delegate(batches []*batch, own *call) (mine *batch) {
	for _, b := range batches {
		leader := b.calls[0]
		for _, c := range b.calls {
			if c == own {
				leader = own
			}
		}
		if leader == own && own != nil {
			mine = b
			continue
		}
		leader.signal <- signal{lead: b}
	}
	return mine
}

// maxExchange bounds the bodies of one exchange, in bytes; a batch beyond it
// travels in several. One body is never cut.
const maxExchange = 32 << 20

// cut returns the first calls of a batch whose bodies fit into one exchange.
func cut(calls []*call) []*call {
	size := 0
	for i, c := range calls {
		if size += len(c.request.Body); size > maxExchange && i > 0 {
			return calls[:i]
		}
	}
	return calls
}

// lead executes a batch on behalf of its members and returns own's signal,
// which is not sent.
func (d *Dispatcher) lead(b *batch, own *call) (mine signal) {
	if mine = d.prune(b, own, time.Now()); len(b.calls) == 0 {
		d.done(b, false, Executed{})
		return mine
	}
	for _, c := range b.calls {
		d.options.Recorder.ObserveQueue(max(0, b.sent.Sub(c.arrived)))
	}
	for rest := b.calls; len(rest) > 0; {
		part := cut(rest)
		responses, took, err := b.link.exchange(part)
		failure, harmless := harmless(err)
		if err != nil && !harmless {
			return d.lost(b, rest, own, mine, err)
		}
		if rest = rest[len(part):]; len(rest) == 0 {
			// The instance first: its next batch should not wait for these
			// answers.
			d.done(b, err == nil, b.executed(responses, took))
		}
		if err == nil {
			d.record(b, len(part), took.time)
		}
		for i, c := range part {
			s := signal{err: failure}
			if err == nil {
				s = signal{response: &responses[i]}
			}
			if c == own {
				mine = s
				continue
			}
			c.signal <- s
		}
	}
	return mine
}

// prune answers the members of a batch that cannot be in time any more: on a busy
// machine its leader may have begun long after the policy decided. What remains is
// executed. It returns own's signal if own is one of them.
func (d *Dispatcher) prune(b *batch, own *call, now time.Time) (mine signal) {
	kept := b.calls[:0]
	for _, c := range b.calls {
		if !now.Add(b.least).After(c.deadline) || c.orphaned || c.retried {
			kept = append(kept, c)
			continue
		}
		if !c.excused() {
			d.refused.Add(1)
		}
		d.options.Recorder.AddDrop(metrics.Late)
		if c == own {
			mine = signal{err: ErrLate}
			continue
		}
		c.signal <- signal{err: ErrLate}
	}
	b.calls = kept
	return mine
}

// record counts what was executed: one batch, or several short ones in turn.
func (d *Dispatcher) record(b *batch, n int, exec time.Duration) {
	for rest := n; rest > 0; rest -= b.limit {
		size := min(rest, b.limit)
		d.options.Recorder.ObserveBatch(size, exec*time.Duration(size)/time.Duration(n))
	}
}

// done tells the policy that an instance is free again; served says that it
// answered, ran what it executed.
func (d *Dispatcher) done(b *batch, served bool, ran Executed) {
	now := time.Now()
	d.mu.Lock()
	if m, ok := d.instances[b.instance]; ok {
		m.served = m.served || served
		d.evidence.add(m, ran)
	}
	d.release(b.instance, now)
	if b.policy == d.policy { // A policy that came since has not sent it.
		d.policy.Done(now, b.instance)
	}
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
}

// lost deals with an exchange that broke off: the instance gets nothing more,
// and those of its members that are not answered go back to the queue, once if the
// instance may have had them, with the deadline they had; where no other instance is
// ready, with that of a request that finds none. It returns own's signal, mine if it
// has been answered.
func (d *Dispatcher) lost(b *batch, unanswered []*call, own *call, mine signal, cause error) signal {
	now := time.Now()
	d.mu.Lock()
	if m, known := d.instances[b.instance]; known && m.up {
		m.up = false
		d.policy.Down(now, b.instance)
		go d.options.OnLost(b.instance, cause)
	}
	d.release(b.instance, now)
	answered, reached := true, !errors.Is(cause, errUnreached)
	for _, c := range unanswered {
		answered = answered && c != own
		if !c.cold && !c.orphaned && d.ready() == 0 {
			c.orphaned, c.deadline = true, c.deadline.Add(d.options.ColdWait)
		}
		switch {
		case c.ctx.Err() != nil:
			c.signal <- signal{err: c.ctx.Err()}
		case c.retried && reached || d.closed || !now.Before(c.deadline):
			d.options.Recorder.AddDrop(metrics.InstanceLost)
			c.signal <- signal{err: ErrInstanceLost}
		default:
			c.retried = c.retried || reached
			d.calls[c.id] = c
			d.policy.Add(now, batching.Request{ID: c.id, Deadline: c.deadline})
		}
	}
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
	if answered {
		return mine
	}
	return d.wait(own)
}

// release takes a batch off an instance. The lock is held.
func (d *Dispatcher) release(id cluster.InstanceID, now time.Time) {
	m, ok := d.instances[id]
	if !ok {
		return
	}
	m.inFlight--
	m.idleSince = now
	d.settle(m)
}

// settle closes the drain of an instance that is down and has nothing in
// flight. The lock is held.
func (d *Dispatcher) settle(m *peer) {
	if !m.up && m.inFlight == 0 && m.drained != nil {
		close(m.drained)
		m.drained = nil
	}
}
