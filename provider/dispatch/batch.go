package dispatch

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// batch is the requests that the policy sends to an instance together.
type batch struct {
	instance cluster.InstanceID
	link     *link
	// policy is the policy that formed it.
	policy batching.Policy
	// limit is the maximum number of requests that the instance executes at once.
	limit int
	// least is the time of a batch of one on the instance.
	least time.Duration
	calls []*call
	sent  time.Time
}

// delegate gives every batch a leader. It returns the batch with own, which the
// caller must lead. In every other batch it wakes the first member.
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

// maxExchange bounds the bodies of one exchange, in bytes. A larger batch takes
// several exchanges. A single body is never split.
const maxExchange = 32 << 20

// cut returns the first calls whose bodies fit into one exchange together.
func cut(calls []*call) []*call {
	size := 0
	for i, c := range calls {
		if size += len(c.request.Body); size > maxExchange && i > 0 {
			return calls[:i]
		}
	}
	return calls
}

// lead executes a batch for its members. It returns own's signal instead of
// sending it.
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
			// Free the instance first: its next batch must not wait until
			// these answers are handed out.
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

// prune answers the members of a batch that can no longer be in time, and keeps the
// others: on a busy machine the leader may begin long after the policy decided. It
// returns own's signal if own is answered.
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

// record records n executed requests as batches of at most the instance's limit.
func (d *Dispatcher) record(b *batch, n int, exec time.Duration) {
	for rest := n; rest > 0; rest -= b.limit {
		size := min(rest, b.limit)
		d.options.Recorder.ObserveBatch(size, exec*time.Duration(size)/time.Duration(n))
	}
}

// done tells the policy that an instance is free again. served: the instance has
// answered. ran is the batch that it executed.
func (d *Dispatcher) done(b *batch, served bool, ran Executed) {
	now := time.Now()
	d.mu.Lock()
	if m, ok := d.instances[b.instance]; ok {
		m.served = m.served || served
		d.samples.add(m, ran)
	}
	d.release(b.instance, now)
	if b.policy == d.policy { // Reconfigure's new policy has not sent the batch.
		d.policy.Done(now, b.instance)
	}
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
}

// lost handles an exchange that broke off. The instance gets nothing more. Its
// unanswered members go back to the queue with their deadlines, but only once if the
// instance may have received them. If no other instance is ready, ColdWait is added
// to their deadlines. lost returns own's signal: mine if own was answered already.
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

// release records that a batch on an instance has ended. The lock is held.
func (d *Dispatcher) release(id cluster.InstanceID, now time.Time) {
	m, ok := d.instances[id]
	if !ok {
		return
	}
	m.inFlight--
	m.idleSince = now
	d.settle(m)
}

// settle ends the drain of an instance that is down and has nothing in flight. The
// lock is held.
func (d *Dispatcher) settle(m *instanceState) {
	if !m.up && m.inFlight == 0 && m.drained != nil {
		close(m.drained)
		m.drained = nil
	}
}
