package disturb

import (
	"math/rand/v2"
	"net/http"
)

// Counts are the numbers of disturbances so far.
type Counts struct {
	// Events is the number of events under a plan. Delayed, Duplicated and Dropped are
	// parts of it.
	Events, Delayed, Duplicated, Dropped int
	// Broken and Expired are the numbers of watches by their end.
	Broken, Expired int
	// Stale is the number of stale lists. Refused and Lost are numbers of writes.
	Stale, Refused, Lost int
}

func (c *Counts) add(s step) {
	c.Events++
	for _, did := range []struct {
		what  bool
		count *int
	}{{s.delay > 0, &c.Delayed}, {s.drop, &c.Dropped}, {s.duplicate && !s.drop, &c.Duplicated}} {
		if did.what {
			*did.count++
		}
	}
}

// Counts returns the numbers of disturbances so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Follow changes the plan from now on, for open watches too.
func (p *Proxy) Follow(plan Plan) error {
	if err := plan.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
	return nil
}

// Freeze holds all events back, like a hanging watch cache. Watches stay open, and requests
// are answered.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default:
	}
}

// Thaw delivers events again after Freeze, those held back first.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// Cut breaks the connections of all open watches and returns their number.
func (p *Proxy) Cut() int { return p.endAll(broken) }

// Expire ends all open watches with 410 Gone and returns their number.
func (p *Proxy) Expire() int { return p.endAll(expired) }

func (p *Proxy) endAll(how ending) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		select {
		case w.end <- how:
		default: // The watch is already ending.
		}
	}
	return len(p.watches)
}

func (p *Proxy) enter(w *opened) *rand.Rand {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[w] = struct{}{}
	return p.source("watch " + w.path)
}

func (p *Proxy) leave(w *opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watches, w)
}

// source returns the random source of the next request for key. The caller holds the lock.
func (p *Proxy) source(key string) *rand.Rand {
	p.asked[key]++
	return p.plan.source(key, p.asked[key])
}

// draw returns the plan for a request and its random source.
func (p *Proxy) draw(r *http.Request) (Plan, *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	plan := p.plan
	if !plan.on(r.URL.Path) {
		plan = Plan{}
	}
	return plan, p.source(r.Method + " " + r.URL.Path)
}

func (p *Proxy) present() Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan
}

func (p *Proxy) flowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}

func (p *Proxy) count(f func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.counts)
}
