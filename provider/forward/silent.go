package forward

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/health/probe"
)

const (
	// watchAfter is how long a request may be on an instance before the instance is asked
	// for its health, every askPause, with at most askTime for the answer. A request to a
	// program may lawfully take minutes, so its time alone says nothing.
	watchAfter = time.Second
	askPause   = 500 * time.Millisecond
	askTime    = time.Second
	// suspectAfter is the silence after which an instance gets no new requests, giveUp the
	// silence after which it is lost: an overloaded machine holds programs back for seconds.
	suspectAfter = 2 * time.Second
	giveUp       = 30 * time.Second
)

// errSilent is why an instance is lost that accepts connections and answers nothing.
var errSilent = errors.New("it answered no health question for 30 s")

// rules are those of programs.
var rules = health.Rules{Eject: suspectAfter, Lose: giveUp}

// notice is a call of OnSuspect.
type notice struct {
	id      cluster.InstanceID
	suspect bool
}

// watch asks an instance for its health as long as it has requests, if nobody does so yet.
func (f *Forwarder) watch(p *instance) {
	f.mu.Lock()
	ask := f.instances[p.id] == p && !f.closed && p.health.Doubt(false)
	f.mu.Unlock()
	if ask {
		alive := func(within time.Duration) error { return probe.Alive(f.options.Dial, p.network, p.address, within) }
		probe.Watch(f.ended, probe.Times{Within: askTime, Pause: askPause}, alive,
			func(err error, silence time.Duration) bool { return f.judge(p, err, silence) })
	}
}

// judge acts on an instance's answer, err if there is none since silence. done says that it is not
// asked again.
func (f *Forwarder) judge(p *instance, err error, silence time.Duration) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !p.health.Asking() {
		return true
	}
	now, before := time.Now(), p.health.State()
	if err == nil {
		p.health.Heard(now, false)
		f.resume(now, p)
		done = p.inFlight == 0 || !p.health.Doubt(false)
	} else {
		p.health.Unheard(silence, rules)
	}
	state := p.health.State()
	switch {
	case state == health.Gone:
		f.retire(p)
		go f.options.OnLost(p.id, fmt.Errorf("%w: %w", errSilent, err))
		return true
	case state == health.Silent && before != health.Silent:
		f.down(p)
		f.notices.Send(notice{p.id, true})
		f.spareNone(now)
	case state != health.Silent && before == health.Silent:
		f.notices.Send(notice{p.id, false})
	}
	return done
}

// answered compares an instance's answer with those of the others.
func (f *Forwarder) answered(p *instance, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	spare := slices.ContainsFunc(f.ready, func(o *instance) bool { return o != p })
	ejected := p.health.Pause(now) > 0 || p.health.State() == health.Probing
	for _, t := range f.siblings.Answered(now, &p.health, failed, spare) {
		if t != &p.health || p.health.Serves() {
			f.reinstated(now, t)
			continue
		}
		f.down(p)
		if p.health.State() == health.Gone {
			go f.options.OnLost(p.id, p.health.Why())
			continue
		}
		f.resume(now, p)
		if !ejected {
			f.notices.Send(notice{p.id, true})
		}
	}
}

// reinstated makes the instance with that health serve, which was ejected before. The lock is held.
func (f *Forwarder) reinstated(now time.Time, t *health.Target) {
	for _, p := range f.instances {
		if &p.health == t {
			f.resume(now, p)
			f.notices.Send(notice{p.id, false})
		}
	}
}

// spareNone makes the ejected instances serve if no other does: a bad answer is better than none. The
// lock is held.
func (f *Forwarder) spareNone(now time.Time) {
	if len(f.ready) > 0 || f.closed {
		return
	}
	for _, t := range f.siblings.Reinstate(now) {
		f.reinstated(now, t)
	}
}

// resume lets an instance do what its state allows: get requests, one request as a probe, or wait for
// that. The lock is held.
func (f *Forwarder) resume(now time.Time, p *instance) {
	switch state := p.health.State(); {
	case p.up || f.closed || f.instances[p.id] != p:
	case state == health.Ejected:
		time.AfterFunc(p.health.Pause(now), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if now := time.Now(); p.health.Probe(now) {
				f.resume(now, p)
			}
		})
	case p.health.Serves() && (state != health.Probing || p.inFlight == 0):
		f.raise(p)
	}
}
