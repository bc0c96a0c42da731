package dispatch

import (
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance/frame"
)

const (
	// silence is how long an instance may take to answer a health question. A CPU quota
	// holds a process back for at most 100 ms at a time.
	silence = 150 * time.Millisecond
	// askPause is the pause between two questions to an instance that does not answer.
	askPause = 50 * time.Millisecond
	// failedPause is the pause between two questions to an instance whose batches fail.
	failedPause = time.Second
	// giveUp is the time without an answer after which an instance is lost.
	giveUp = 2 * time.Second
)

// rules are those of instances: they do not serve while a question is unanswered.
var rules = health.Rules{Lose: giveUp}

// errSilent is why an instance is lost that accepts connections and answers nothing.
var errSilent = errors.New("its batch took far longer than usual, and it answered no health question for 2 s")

// healthDriver carries out what package health decides of the instances.
type healthDriver struct{ *Dispatcher }

// verdict is what is known of an instance with an overdue batch.
type verdict int

const (
	// asking: a health question is open.
	asking verdict = iota
	// living: it has answered the question.
	living
	// suspended: it has not answered within silence, and does not serve until it does.
	suspended
)

// suspect asks for an instance's health, unless it has answered after since. Until it
// answers, new batches go to other instances if these serve all classes that came.
func (d *Dispatcher) suspect(id cluster.InstanceID, since time.Time) (v verdict) {
	d.delegate(d.locked(func(now time.Time) {
		m, ok := d.instances[id]
		switch {
		case !ok || !since.IsZero() && m.lived.After(since):
			v = living
		case m.health.State() == health.Silent:
			v = suspended
		case m.health.Asking() || d.closed:
		default:
			h := healthDriver{d}
			h.doubt(now, m, h.replaceable(m))
		}
	}), nil)
	return v
}

// replaceable reports whether other instances serve all classes that came and that m serves. The
// lock is held.
func (d healthDriver) replaceable(m *instanceState) bool {
	return m.up && d.up.total > 1 && d.up.fewer(2)&m.Serves()&d.waiting.seen == 0
}

// doubt asks whether an instance lives, if nobody does so yet. With aside it gets no more batches
// until it answers. The lock is held.
func (d healthDriver) doubt(now time.Time, m *instanceState, aside bool) {
	ask := m.health.Doubt(aside)
	if !m.health.Serves() {
		d.down(now, m)
	}
	if ask {
		go probe.Watch(d.ended, probe.Times{Within: silence, Pause: askPause}, m.link.alive,
			func(err error, silence time.Duration) bool { return d.judge(m, err, silence) })
	}
}

// judge acts on an instance's answer, err if there is none since silence. done says that it is not
// asked again.
func (d healthDriver) judge(m *instanceState, err error, silence time.Duration) (done bool) {
	d.delegate(d.locked(func(now time.Time) {
		before := m.health.State()
		_, local := harmless(err)
		switch {
		case d.closed || !m.health.Asking():
			done = true
		case err == nil:
			m.lived, done = now, true
			m.health.Heard(now, m.inFlight > 0) // Its batches go on, and the policy would not know of them.
			d.resume(now, m)
		case local: // This process has no descriptor left for the question.
		default:
			if m.health.Unheard(silence, rules); m.health.State() == health.Gone {
				done = true
				d.siblings.Forget(&m.health)
				go d.options.OnLost(m.ID, fmt.Errorf("%w: %w", errSilent, err))
			}
			d.down(now, m)
			d.spareNone(now)
		}
		if silent := m.health.State() == health.Silent; silent != (before == health.Silent) && m.health.State() != health.Gone {
			d.notices.Send(notice{m.ID, silent})
		}
	}), nil)
	return done
}

// notice is a call of OnSuspect.
type notice struct {
	id      cluster.InstanceID
	suspect bool
}

// result says how an exchange was answered.
type result int

const (
	// unknown: it was not, or not by the instance, or all members were refused for the load.
	unknown result = iota
	// good: at least one member has another answer than an error of the instance.
	good
	// failed: all members have such an error.
	failed
)

// failing reports whether an answer is an error of the instance, and not of the request, or of the
// load, which is told by Retry-After.
func failing(r *frame.Response) bool {
	return r != nil && health.Failing(r.Status, r.Header)
}

// outcomeOf returns the outcome of an exchange.
func outcomeOf(responses []frame.Response) result {
	of := failed
	for i := range responses {
		switch {
		case responses[i].Status < 500:
			return good
		case !failing(&responses[i]):
			of = unknown
		}
	}
	return of
}

// compare compares a batch's outcome with those of other instances. The lock is held.
func (d healthDriver) compare(now time.Time, b *batch) {
	m, ok := d.instances[b.instance]
	if !ok || !b.answered {
		return
	}
	if b.outcome != good && now.Sub(m.lived) > failedPause && !d.closed { // A part of it may be stopped.
		d.doubt(now, m, false)
	}
	if b.outcome == unknown {
		return
	}
	probing := m.health.State() == health.Probing
	for _, t := range d.siblings.Answered(now, &m.health, b.outcome == failed, d.replaceable(m)) {
		if t != &m.health {
			d.reinstated(now, d.owner(t))
			continue
		}
		switch m.health.State() {
		case health.Healthy:
			d.reinstated(now, m)
		case health.Gone:
			d.down(now, m)
			go d.options.OnLost(m.ID, m.health.Why())
		default:
			d.down(now, m)
			d.resume(now, m)
			if !probing {
				d.notices.Send(notice{m.ID, true})
			}
		}
	}
}

// owner returns the instance with that health, nil if it has been forgotten. The lock is held.
func (d healthDriver) owner(t *health.Target) *instanceState {
	for _, m := range d.instances {
		if &m.health == t {
			return m
		}
	}
	return nil
}

// reinstated makes an instance serve that was ejected before. The lock is held.
func (d healthDriver) reinstated(now time.Time, m *instanceState) {
	if m == nil {
		return
	}
	d.resume(now, m)
	d.notices.Send(notice{m.ID, false})
}

// spareNone makes the ejected instances serve if no other does: a bad answer is better than none. The
// lock is held.
func (d healthDriver) spareNone(now time.Time) {
	if d.up.total > 0 || d.closed {
		return
	}
	for _, t := range d.siblings.Reinstate(now) {
		d.reinstated(now, d.owner(t))
	}
}

// resume lets an instance do what its state allows: take batches, take one request as a probe, or wait
// for that. The lock is held.
func (d healthDriver) resume(now time.Time, m *instanceState) {
	switch {
	case m.ready() && !m.up:
		d.raise(now, m)
	case m.health.State() == health.Probing:
		d.probing = append(d.probing, m)
	case m.health.State() == health.Ejected:
		time.AfterFunc(m.health.Pause(now), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if m.health.Probe(time.Now()) {
				d.resume(now, m)
			}
		})
	}
}

// probe returns a batch of a call alone for an instance that is to be probed, nil if there is none.
// The lock is held.
func (d healthDriver) probe(now time.Time, c *call) *batch {
	for len(d.probing) > 0 && d.up.of[c.class] > 0 {
		m := d.probing[0]
		ready := m.health.State() == health.Probing && m.inFlight == 0
		if ready && m.Serves()>>c.class&1 == 0 {
			return nil
		}
		d.probing = d.probing[1:]
		if ready {
			b := d.batch(now, m, m.ID, []*call{c})
			b.policy = nil
			return b
		}
	}
	return nil
}
