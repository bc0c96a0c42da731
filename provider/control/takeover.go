package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// orphan is an instance of an earlier provider.
type orphan struct {
	cluster.Instance
	// since is when it was first seen.
	since time.Time
	// leaving: nobody wants it, and it is being stopped.
	leaving bool
}

// claim takes over the instances of an earlier provider that are this
// function's. It needs the profile, for their times. The lock is held.
func (c *Controller) claim(fn *function) {
	for id, known := range c.known {
		if known.Function != fn.Name || known.leaving {
			continue
		}
		c.claimOne(fn, id, known)
	}
}

// claimOne takes over one instance. The lock is held.
func (c *Controller) claimOne(fn *function, id cluster.InstanceID, known *orphan) {
	kept, ok := c.adopt(fn, known.Instance)
	if !ok {
		c.leave(id, known, "its config is not among those that were measured")
		return
	}
	close(kept.begun)
	delete(c.known, id)
	switch {
	case kept.Model != fn.prepared || !sameContent(kept.Bundle, fn.bundle):
		// What the image names has changed while no provider ran.
		kept.Revision, kept.times = 0, nil
	case fn.knows(&kept.Instance):
		kept.Revision = fn.Revision
	}
	event := c.options.Logger.Info()
	if c.several() {
		event = c.options.Logger.Debug() // All that others start come here.
	}
	event.Str("function", fn.Name).Str("instance", string(id)).Msg("took over a running instance")
	if kept.away = kept.Parked; kept.away {
		kept.idleSince = time.Now()
	} else if kept.State == cluster.Ready {
		kept.up(c.rules.Queue(fn.Function))
	}
}

// stopUnclaimed stops the instances whose functions are gone. Those of a
// function that is being prepared are claimed later.
func (c *Controller) stopUnclaimed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, known := range c.known {
		if _, ok := c.functions[known.Function]; !ok {
			c.leave(id, known, "its function is gone")
		}
	}
}

// dismiss stops a function's unclaimed instances. The lock is held.
func (c *Controller) dismiss(function, why string) {
	for id, known := range c.known {
		if known.Function == function {
			c.leave(id, known, why)
		}
	}
}

// leave stops an unclaimed instance. Until it is gone it holds its room. The
// lock is held.
func (c *Controller) leave(id cluster.InstanceID, known *orphan, why string) {
	if known.leaving || !c.leading() {
		return
	}
	known.leaving = true
	c.options.Logger.Info().Str("function", known.Function).Str("instance", string(id)).Str("why", why).Msg("stopping an instance of an earlier provider")
	c.keeper.Begin(func() { c.keeper.Stop(id, c.options.StopGrace) })
}

// observeKnown takes in the new state of an instance that nobody has claimed.
// The lock is held.
func (c *Controller) observeKnown(seen cluster.Instance) {
	known, ok := c.known[seen.ID]
	switch {
	case !ok && c.several():
		c.discover(seen)
	case !ok:
	case seen.State == cluster.Exited:
		delete(c.known, seen.ID)
		c.Wake()
	case c.several():
		known.Instance = seen
	default:
		known.State, known.Network, known.Address, known.ReadyAt = seen.State, seen.Network, seen.Address, seen.ReadyAt
	}
}

// stopsOfAll is what stops every instance; nothing, if others go on with them. The
// lock is held.
func (c *Controller) stopsOfAll(ctx context.Context) (stops []func() error) {
	if c.several() {
		return nil
	}
	for id, in := range c.instances {
		stops = append(stops, c.keeper.AtEnd(ctx, id, in.begun))
	}
	for id := range c.known {
		stops = append(stops, func() error { return c.options.Backend.Stop(ctx, id) })
	}
	return stops
}
