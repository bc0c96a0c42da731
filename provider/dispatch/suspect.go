package dispatch

import (
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

const (
	// silence is how long an instance may take to answer a health question. A CPU quota
	// holds a process back for at most 100 ms at a time.
	silence = 150 * time.Millisecond
	// askPause is the pause between two questions to an instance that does not answer.
	askPause = 50 * time.Millisecond
	// giveUp is the time without an answer after which an instance is lost.
	giveUp = 2 * time.Second
)

// errSilent is why an instance is lost.
var errSilent = errors.New("its batch took far longer than usual, and it answered no health question for 2 s")

// verdict is the state of an instance with an overdue batch.
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
		case m.suspended:
			v = suspended
		case m.asked || d.closed:
		default:
			if m.up && d.up.total > 1 && d.up.fewer(2)&m.Serves()&d.waiting.seen == 0 {
				d.putAside(now, m)
			}
			m.asked = true
			go d.ask(id, m)
		}
	}), nil)
	return v
}

// putAside gives an instance no more batches until it answers a health question. The lock is
// held.
func (d *Dispatcher) putAside(now time.Time, m *instanceState) {
	d.down(now, m)
	m.suspect, m.answered = true, false
}

// ask asks for an instance's health until it answers, leaves or is lost.
func (d *Dispatcher) ask(id cluster.InstanceID, m *instanceState) {
	for began := time.Now(); ; {
		asked := time.Now()
		err := m.link.alive(silence)
		// The silence means nothing if this process itself was held back.
		if held := time.Since(asked) > 2*silence; (err == nil || !held) && d.judge(id, m, err, time.Since(began)) {
			return
		}
		select {
		case <-d.ended:
			return
		case <-time.After(askPause):
		}
	}
}

// judge acts on an instance's answer, err if there is none, since after the first question.
// done says that it is not asked again.
func (d *Dispatcher) judge(id cluster.InstanceID, m *instanceState, err error, since time.Duration) (done bool) {
	var changed, suspect bool
	d.delegate(d.locked(func(now time.Time) {
		_, local := harmless(err)
		switch {
		case d.instances[id] != m || m.leaving || d.closed || !m.up && !m.suspect:
			m.asked, done = false, true
		case err == nil:
			m.asked, m.lived, done = false, now, true
			changed, m.suspended = m.suspended, false
			// Its batches go on, and the policy would not know of them.
			if m.answered = m.suspect && m.inFlight > 0; m.suspect && !m.answered {
				m.suspect = false
				d.raise(now, m)
			}
		case local: // This process has no descriptor left for the question.
		case since >= giveUp:
			m.asked, done = false, true
			d.lose(now, id, fmt.Errorf("%w: %w", errSilent, err))
		case !m.suspended:
			m.suspended, changed, suspect = true, true, true
			d.putAside(now, m)
		}
	}), nil)
	if changed {
		d.options.OnSuspect(id, suspect)
	}
	return done
}
