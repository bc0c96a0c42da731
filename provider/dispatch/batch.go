package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// batch is the requests that the policy sends to an instance together.
type batch struct {
	instance cluster.InstanceID
	// stream is where the policy sent it: the instance, or a stream of it.
	stream cluster.InstanceID
	// variant is the artefact that the instance has loaded.
	variant string
	// revision is the number of the revision that the instance runs.
	revision uint64
	link     *link
	// policy is the policy that formed it, nil for a probe.
	policy batching.Policy
	// limit is the maximum number of requests that the instance executes at once.
	limit int
	// least is the time of a quick batch of one on the instance, predicted the time that few batches
	// such as this one exceed.
	least, predicted time.Duration
	// rows is how many rows its calls seem to have.
	rows int
	// overdue is the time after which the instance is suspected; slo is the objective.
	// slow: the instance is too slow for the objective and answers late as a rule. once:
	// no member may run twice.
	overdue, slo time.Duration
	slow, once   bool
	// generation is the instance's when the batch was formed, and upSince.
	generation int
	upSince    time.Time
	calls      []*call
	looks      looks
	sent       time.Time
	// outcome says how its last exchange was answered, if it was.
	outcome  result
	answered bool
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

// cut returns the first calls that fit into one exchange together: by their bodies, and either all or none of them
// take their answers in parts.
func cut(calls []*call) []*call {
	size := 0
	for i, c := range calls {
		if size += len(c.request.Body); i > 0 && (size > maxExchange || c.takesParts() != calls[0].takesParts()) {
			return calls[:i]
		}
	}
	return calls
}

// refuse counts a call that can no longer be answered in time, and returns its error.
func (d *Dispatcher) refuse(c *call) error {
	err, reason := c.late(), metrics.Late
	if c.retried {
		err, reason = ErrInstanceLost, metrics.InstanceLost
	}
	if !c.excused() {
		d.refused.Add(1)
	}
	c.dropped(d.options.Recorder, reason)
	return err
}

// done tells the policy that an instance is free again. total is the time from the batch's
// formation to its answer, 0 without an answer. ran is the batch that it executed.
func (d *Dispatcher) done(b *batch, total time.Duration, ran Executed) {
	d.delegate(d.locked(func(now time.Time) {
		if m, ok := d.instances[b.instance]; ok {
			m.served = m.served || total > 0
			d.samples.add(m, ran)
			d.sizes.learn(b.looks, ran.Elements)
			if d.sizes.turns(d.instances, m, ran) {
				d.pad(now, !d.sizes.pads())
			}
		}
		if total > 0 {
			d.tardiness.add(b.predicted, total)
		}
		if ran.Size == b.rows {
			d.pace.Add(ran.Exec, b.predicted)
		}
		// Reconfigure's new policy has not sent the batch, and a policy that was told of
		// the instance again since does not count it.
		if m, ok := d.instances[b.instance]; ok && b.policy == d.policy && b.generation == m.generation {
			d.policy.Done(now, b.stream)
		}
		healthDriver{d}.compare(now, b)
		d.release(b.instance, now)
	}), nil)
}

// lose takes an instance out of service for good and reports it as lost. The lock is held.
func (d *Dispatcher) lose(now time.Time, id cluster.InstanceID, cause error) {
	m, known := d.instances[id]
	if !known || m.parked || m.health.State() == health.Gone {
		return
	}
	d.retire(now, m)
	go func() {
		m.link.keepNone() // Its stop would wait for idle connections.
		d.options.OnLost(id, cause)
	}()
}

// again puts unanswered members of a batch back into the queue with their deadlines. If the
// instance may have executed them (not unsent), it does so only once, and not at all with once. If
// no other instance is ready, their deadlines include ColdWait. answered says that own
// is none of them. The lock is held.
func (d *Dispatcher) again(now time.Time, unanswered []*call, own *call, unsent, once bool) (answered bool) {
	answered = true
	for _, c := range unanswered {
		if c == nil {
			continue
		}
		answered = answered && c != own
		if d.up.of[c.class] == 0 {
			c.orphaned = true
			c.extend(now, d.options.ColdWait, false)
		}
		switch {
		case c.ctx.Err() != nil:
			c.answer(signal{err: c.ctx.Err()})
		case !c.begun.IsZero(): // The client has a part of the answer.
			c.dropped(d.options.Recorder, metrics.InstanceLost)
			c.answer(signal{err: ErrInstanceLost})
		case unsent && !d.closed && !now.Before(c.deadline):
			c.answer(signal{err: d.refuse(c)})
		case (c.retried || once) && !unsent || d.closed || !now.Before(c.deadline):
			c.dropped(d.options.Recorder, metrics.InstanceLost)
			c.answer(signal{err: ErrInstanceLost})
		default:
			c.retried = c.retried || !unsent
			d.waiting.add(c)
			d.policy.Add(now, c.asPolicy())
		}
	}
	return answered
}

// locked changes the dispatcher's state under its lock and returns the batches that must be
// sent then. A panic releases the lock.
func (d *Dispatcher) locked(change func(now time.Time)) []*batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now() // Under the lock: the policy's time never goes back.
	change(now)
	return d.act(now)
}

// release records that a batch on an instance has ended. The lock is held.
func (d *Dispatcher) release(id cluster.InstanceID, now time.Time) {
	m, ok := d.instances[id]
	if !ok {
		return
	}
	m.inFlight--
	m.idleSince = now
	if m.inFlight == 0 {
		m.health.Finished()
		healthDriver{d}.resume(now, m)
	}
	d.settle(m)
}

// settle ends the drain of an instance that is down and has nothing in flight. The
// lock is held.
func (d *Dispatcher) settle(m *instanceState) {
	if !m.up && m.inFlight == 0 && !m.lent && m.drained != nil {
		close(m.drained)
		m.drained = nil
	}
}
