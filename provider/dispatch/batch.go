package dispatch

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// batch is what one exchange carries.
type batch struct {
	instance cluster.InstanceID
	link     *link
	// limit is the most that the instance executes at once.
	limit int
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

// lead executes a batch on behalf of its members and returns own's signal,
// which is not sent.
func (d *Dispatcher) lead(b *batch, own *call) signal {
	requests := make([]frame.Request, len(b.calls))
	for i, c := range b.calls {
		requests[i] = *c.request
		d.options.Recorder.ObserveQueue(b.sent.Sub(c.arrived))
	}
	responses, exec, err := b.link.exchange(requests)
	if err != nil {
		return d.lost(b, own, err)
	}
	d.record(b, exec)
	// The instance first: its next batch should not wait for these answers.
	d.done(b.instance)
	var mine signal
	for i, c := range b.calls {
		s := signal{response: &responses[i]}
		if c == own {
			mine = s
			continue
		}
		c.signal <- s
	}
	return mine
}

// record counts what was executed: one batch, or several short ones in turn.
func (d *Dispatcher) record(b *batch, exec time.Duration) {
	n := len(b.calls)
	for rest := n; rest > 0; rest -= b.limit {
		size := min(rest, b.limit)
		d.options.Recorder.ObserveBatch(size, exec*time.Duration(size)/time.Duration(n))
	}
}

// done tells the policy that an instance is free again.
func (d *Dispatcher) done(id cluster.InstanceID) {
	now := time.Now()
	d.mu.Lock()
	if m, ok := d.instances[id]; ok {
		m.served = true
	}
	d.release(id, now)
	d.policy.Done(now, id)
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
}

// lost deals with an exchange that broke off: the instance gets nothing more,
// and its members go back to the queue once, with the deadline they had.
func (d *Dispatcher) lost(b *batch, own *call, cause error) signal {
	now := time.Now()
	d.mu.Lock()
	m, known := d.instances[b.instance]
	report := known && m.up
	if report {
		m.up = false
		d.policy.Down(now, b.instance)
	}
	d.release(b.instance, now)
	for _, c := range b.calls {
		if c.retried || d.closed || !now.Before(c.deadline) {
			d.options.Recorder.AddDrop(metrics.InstanceLost)
			c.signal <- signal{err: ErrInstanceLost}
			continue
		}
		c.retried = true
		d.calls[c.id] = c
		d.policy.Add(now, batching.Request{ID: c.id, Deadline: c.deadline})
	}
	batches := d.act(now)
	d.mu.Unlock()
	d.delegate(batches, nil)
	if report {
		d.options.OnLost(b.instance, cause)
	}
	// own's answer, or a batch to lead, comes as for every other member. Its
	// client may have left; the wait ends by the deadline at the latest.
	return <-own.signal
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
