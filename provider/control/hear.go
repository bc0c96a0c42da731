package control

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// others is what the other replicas have told of one function.
type others struct {
	// heard is what each last told, by its Boot.
	heard map[string]heard
	// arrivals and cold count what came to them since this replica listens.
	arrivals, cold uint64
	executed       []dispatch.Executed
}

type heard struct {
	peer.FunctionLoad
	at time.Time
}

// mostHeard bounds what others have executed until it is looked at.
const mostHeard = 1024

// hear takes in what the other replicas have told. The lock is held.
func (c *Controller) hear(now time.Time, loads []peer.Load) {
	present := make(map[string]bool, len(loads))
	for _, l := range loads {
		present[l.Boot] = true
		for name, told := range l.Functions {
			if fn, ok := c.functions[name]; ok {
				fn.others.take(l.Boot, heard{told, l.At})
			}
		}
		for _, e := range l.Executed {
			if fn, ok := c.functions[e.Function]; ok && len(fn.others.executed) < mostHeard {
				fn.others.executed = append(fn.others.executed, dispatch.Executed{Instance: e.Instance, Size: e.Size, Exec: e.Exec})
			}
		}
		for id, why := range l.Lost {
			c.unwell(id, why)
		}
	}
	for _, fn := range c.functions {
		fn.others.keep(present)
	}
	if c.several() {
		c.restore(now)
	}
}

// unwell stops an instance that another replica has lost, if this one leads. The lock
// is held.
func (c *Controller) unwell(id cluster.InstanceID, why string) {
	in, ok := c.instances[id]
	if !ok || in.stopping || !c.led {
		return
	}
	in.retiring, in.fault = true, errUnwell(why)
	c.discard(in)
}

// restore deals with instances that were to be left alone for something that has not
// come: one that was to be parked serves again, one that was to be stopped is reported
// as of no use, since its connections are gone. The lock is held.
func (c *Controller) restore(now time.Time) {
	for id, in := range c.instances {
		if in.asked.IsZero() || now.Sub(in.asked) <= leftAlone {
			continue
		}
		switch {
		case in.away && !in.Parked:
			in.asked = time.Time{}
			c.back(in)
		case in.retiring && !in.stopping && !c.led:
			in.asked = now
			c.report(id, errLeftOver)
		}
	}
}

// errLeftOver is the fault of an instance that was to be stopped, and was not.
var errLeftOver = errors.New("it was to be stopped, and is still there")

// take takes in what a replica tells. Counters of one that was not heard before begin
// with what does not wait yet.
func (o *others) take(boot string, h heard) {
	before, ok := o.heard[boot]
	if !ok {
		if o.heard == nil {
			o.heard = map[string]heard{}
		}
		before.Arrivals, before.Cold = h.Arrivals-min(h.Arrivals, uint64(max(0, h.Waiting))), h.Cold
	}
	if h.Arrivals >= before.Arrivals {
		o.arrivals += h.Arrivals - before.Arrivals
	}
	if h.Cold >= before.Cold {
		o.cold += h.Cold - before.Cold
	}
	o.heard[boot] = h
}

// keep forgets replicas that are not present.
func (o *others) keep(present map[string]bool) {
	for boot := range o.heard {
		if !present[boot] {
			delete(o.heard, boot)
		}
	}
}

// takeExecuted appends what others have executed to into.
func (o *others) takeExecuted(into []dispatch.Executed) []dispatch.Executed {
	into = append(into, o.executed...)
	o.executed = o.executed[:0]
	return into
}

// stats is what all replicas have seen of the function's requests. The lock is held.
func (c *Controller) stats(fn *function) dispatch.Stats {
	s := fn.dispatcher.Stats()
	if !c.several() {
		return s
	}
	c.unused(fn, s)
	s.Arrivals += fn.others.arrivals
	s.Cold += fn.others.cold
	for _, h := range fn.others.heard {
		s.Waiting += h.Waiting
		for id, idle := range h.Idle {
			since, ok := s.Instances[id]
			switch at := h.at.Add(-time.Duration(idle) * time.Millisecond); {
			case !ok || since.IsZero():
			case idle == peer.Busy:
				s.Instances[id] = time.Time{}
			case at.After(since):
				s.Instances[id] = at
			}
		}
	}
	return s
}

// unused notes since when instances have been idle that this replica has never used:
// others need not be told of those. The lock is held.
func (c *Controller) unused(fn *function, s dispatch.Stats) {
	for id, in := range fn.instances {
		if since, ok := s.Instances[id]; ok && in.unused.IsZero() {
			in.unused = since
		}
	}
}
