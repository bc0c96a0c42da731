package control

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// takePeerLoads takes in what the other replicas have told. The lock is held.
func (c *Controller) takePeerLoads(now time.Time, loads []peer.Load) {
	present := make(map[string]bool, len(loads))
	for _, l := range loads {
		present[l.Boot] = true
		for name, told := range l.Functions {
			if fn, ok := c.functions[name]; ok {
				fn.peers.Take(l.Boot, told, l.At)
			}
		}
		for _, e := range l.Executed {
			if fn, ok := c.functions[e.Function]; ok {
				fn.peers.Note(e)
			}
		}
		for id, why := range l.Lost {
			c.stopUnhealthy(id, why)
		}
	}
	for _, fn := range c.functions {
		fn.peers.Keep(present)
	}
	if c.several() {
		c.restore(now)
	}
}

// stopUnhealthy stops an instance that another replica has lost, if this one leads. The lock
// is held.
func (c *Controller) stopUnhealthy(id cluster.InstanceID, why string) {
	in, ok := c.instances[id]
	if !ok || in.stopping || !c.led {
		return
	}
	in.retiring, in.fault = true, errUnhealthy(why)
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

// stats is what all replicas have seen of the function's requests, until it is asked
// again. The lock is held.
func (c *Controller) stats(fn *function) dispatch.Stats {
	fn.dispatcher.Read(&fn.stats)
	if c.several() {
		c.unused(fn, fn.stats)
		fn.peers.Add(&fn.stats)
	}
	return fn.stats
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
