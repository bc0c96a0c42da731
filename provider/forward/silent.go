package forward

import (
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
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

// errSilent is why an instance is lost.
var errSilent = errors.New("it answered no health question for 30 s")

// watch asks an instance for its health as long as it has requests, if nobody does so yet.
func (f *Forwarder) watch(p *instance) {
	f.mu.Lock()
	begin := !p.watched && f.instances[p.id] == p
	p.watched = p.watched || begin
	f.mu.Unlock()
	if !begin {
		return
	}
	for heard := time.Now(); f.watching(p); f.pause() {
		asked := time.Now()
		err := web.Alive(f.options.Dial, p.network, p.address, askTime)
		if now := time.Now(); err == nil || now.Sub(asked) > 2*askTime { // The latter: this process was held back itself.
			heard = now
		}
		f.judge(p, err, time.Since(heard))
	}
}

// pause waits until the next question, or until the forwarder is closed.
func (f *Forwarder) pause() {
	select {
	case <-f.ended:
	case <-time.After(askPause):
	}
}

// watching reports whether an instance is still to be asked; if not, it notes that.
func (f *Forwarder) watching(p *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	there := f.instances[p.id] == p && !f.closed && (p.up || p.suspect)
	p.watched = there && (p.inFlight > 0 || p.suspect)
	return p.watched
}

// judge acts on an instance's silence; err is nil if it has just answered.
func (f *Forwarder) judge(p *instance, err error, silence time.Duration) {
	f.mu.Lock()
	changed := false
	switch {
	case f.instances[p.id] != p || f.closed:
	case err == nil && p.suspect:
		p.suspect, changed = false, true
		f.raise(p)
	case err == nil:
	case silence >= giveUp && (p.up || p.suspect):
		p.suspect = false
		f.down(p)
		go f.options.OnLost(p.id, fmt.Errorf("%w: %w", errSilent, err))
	case silence >= suspectAfter && p.up:
		p.suspect, changed = true, true
		f.down(p)
	}
	suspect := p.suspect
	f.mu.Unlock()
	if changed {
		f.options.OnSuspect(p.id, suspect)
	}
}
