package dispatch

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
)

// loan is an instance that executes one best-effort request. Until it is given back, the policy
// sends ordinary requests elsewhere, or lets them wait. They count it as ready, so they do not
// start another one.
type loan struct {
	d  *Dispatcher
	id cluster.InstanceID
	m  *instanceState
	*batch
	timeout time.Duration
}

// InvokeSpare runs a best-effort request on an instance that no other request needs, and returns
// spare.ErrOccupied if there is none. The request is no load: it neither starts an instance nor
// keeps one. If the exchange takes much longer than usual, the instance goes back to the ordinary
// requests, which find out whether it lives.
func InvokeSpare(d *Dispatcher, request *frame.Request) (*frame.Response, error) {
	c := &call{request: request, class: request.Class, look: d.sizes.lookAt(request)}
	l := lend(d, c)
	if l == nil {
		return nil, spare.ErrOccupied
	}
	defer l.end()
	x, err := l.link.begin(l.calls, []time.Duration{l.timeout}, time.Now().Add(connectTimeout), l.once)
	if err != nil {
		return nil, l.failed(err)
	}
	x.last(l.predicted)
	responses, took, err := l.exchange(x)
	if err != nil {
		x.Close()
		return nil, l.failed(err)
	}
	l.trace(l.calls, x.began, took)
	l.landed(responses, took, time.Since(x.began))
	r := &responses[0]
	r.Instance, r.Variant, r.Revision, r.Used = string(l.id), l.variant, l.revision, took.time
	return r, nil
}

// lend takes an instance for a call from the policy, nil if all are needed.
func lend(d *Dispatcher, c *call) *loan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.policy.Waiting() > 0 {
		return nil
	}
	now := time.Now()
	d.sizes.estimateOf(c)
	var best *instanceState
	for _, m := range d.instances {
		if m.idle() && m.Serves()>>c.class&1 != 0 && dispensable(d, now, m, c) && (best == nil || m.idleSince.Before(best.idleSince)) {
			best = m
		}
	}
	if best == nil {
		return nil
	}
	best.lent = true
	batching.Down(d.policy, now, &best.Instance)
	b := &batch{instance: best.ID, variant: best.Variant, revision: best.Revision, link: best.link, limit: best.Config.Batch, once: d.options.Once, calls: []*call{c}, sent: now}
	b.predict(&best.Instance)
	b.overdue = d.tardiness.overdue(b.predicted)
	return &loan{d: d, id: best.ID, m: best, batch: b, timeout: max(d.timeout(best.Instance), patienceTimes*b.predicted)}
}

// idle reports whether the instance takes batches and has none.
func (m *instanceState) idle() bool {
	return m.up && !m.lent && m.health.State() == health.Healthy && m.inFlight == 0 && !m.Slow && len(m.Exec) > 0
}

// tightest is the shortest objective of those that requests have stated themselves lately.
type tightest struct {
	objective time.Duration
	at        time.Time
}

// remembered is how long a request's own objective counts.
const remembered = time.Minute

// arrive takes in a request.
func (t *tightest) arrive(c *call) {
	if o := c.request.Objective; o > 0 && (t.within(c.arrived, o) >= o) {
		*t = tightest{o, c.arrived}
	}
}

// within returns the shorter one of the tightest objective and otherwise.
func (t *tightest) within(now time.Time, otherwise time.Duration) time.Duration {
	if now.Sub(t.at) > remembered {
		return otherwise
	}
	return min(t.objective, otherwise)
}

// dispensable reports whether ordinary requests can do without an idle instance while it executes
// a call. They can if another idle instance serves what it serves, or if a full batch is in
// time after that call. The lock is held.
//
// For example, with an objective of 200 ms, of which 5 ms are for the way back, an instance that
// takes 40 ms for one request and 150 ms for its full batch is dispensable: 190 ≤ 195.
func dispensable(d *Dispatcher, now time.Time, m *instanceState, c *call) bool {
	b := batch{calls: []*call{c}}
	b.predict(&m.Instance)
	slo := d.waiting.tight.within(now, d.options.SLO)
	if b.predicted+m.Exec[len(m.Exec)-1] <= slo-batching.Travel(slo) {
		return true
	}
	needed := m.Serves() & d.waiting.seen
	for _, o := range d.instances {
		if o != m && o.idle() && needed&^o.Serves() == 0 {
			return true
		}
	}
	return false
}

// exchange sends the batch and returns the answer.
func (l *loan) exchange(x *exchange) ([]frame.Response, taken, error) {
	for until := x.began.Add(l.overdue); ; until = x.end {
		begins, err := x.await(until)
		switch {
		case err != nil:
			return nil, taken{}, err
		case begins:
			return x.finish(x.end, nil)
		case !time.Now().Before(x.end):
			return nil, taken{}, fmt.Errorf("no answer within %v", x.end.Sub(x.began))
		}
		l.end()
	}
}

// landed records what the instance has executed.
func (l *loan) landed(responses []frame.Response, took taken, total time.Duration) {
	l.d.options.Recorder.ObserveBatch(1, took.time, l.calls[0].request.Trace)
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.m.served = true
	l.d.samples.add(l.m, l.executed(responses, took))
	l.d.tardiness.add(l.predicted, total)
}

// failed returns the error of a request whose exchange failed. The instance is lost if that was
// its fault.
func (l *loan) failed(cause error) error {
	if failure, ok := harmless(cause); ok {
		return failure
	}
	l.d.delegate(l.d.locked(func(now time.Time) {
		if l.d.instances[l.id] == l.m {
			l.d.lose(now, l.id, cause)
		}
	}), nil)
	return ErrInstanceLost
}

// end gives the instance back to the policy, once.
func (l *loan) end() {
	l.d.delegate(l.d.locked(func(now time.Time) {
		if !l.m.lent {
			return
		}
		l.m.lent = false
		if l.m.up && l.d.instances[l.id] == l.m {
			batching.Up(l.d.policy, now, l.m.Instance)
		}
		l.d.settle(l.m)
	}), nil)
}
