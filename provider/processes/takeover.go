package processes

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// orphan is an instance of an earlier provider.
type orphan struct {
	cluster.Instance
	// leaving: nobody wants it, and it is being stopped.
	leaving bool
}

// claim takes over the instances of an earlier provider that are this
// function's. Those of another content are replaced like after an update. The
// lock is held.
func (c *Controller) claim(now time.Time, fn *function) {
	for id, known := range c.known {
		if known.Function != fn.Name || known.leaving {
			continue
		}
		delete(c.known, id)
		in := c.adopt(fn, known.Instance)
		close(in.begun)
		c.options.Logger.Info().Str("function", fn.Name).Str("instance", string(id)).Msg("took over a running instance")
		if in.State == cluster.Ready {
			in.up()
		}
	}
	if n := len(fn.instances); n > 0 {
		fn.replicas.Resume(now, n)
	}
}

// stopUnclaimed stops the instances whose functions are gone.
func (c *Controller) stopUnclaimed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, known := range c.known {
		if known.leaving {
			continue
		}
		known.leaving = true
		c.options.Logger.Info().Str("function", known.Function).Str("instance", string(id)).Str("why", "its function is gone").
			Msg("stopping an instance of an earlier provider")
		c.keeper.Begin(func() { c.keeper.Stop(id, c.options.StopGrace) })
	}
}

// observeKnown takes in the new state of an instance that nobody has claimed.
// The lock is held.
func (c *Controller) observeKnown(seen cluster.Instance) {
	known, ok := c.known[seen.ID]
	switch {
	case !ok:
	case seen.State == cluster.Exited:
		delete(c.known, seen.ID)
		c.Wake()
	default:
		known.State, known.Network, known.Address, known.ReadyAt = seen.State, seen.Network, seen.Address, seen.ReadyAt
	}
}
