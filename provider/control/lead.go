package control

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// turn notes whether this replica leads, which is what it is to be during one look.
// Whoever begins to lead has followed up to now: it knows the instances and the load,
// and takes in once more what the backend has, as a parting leader may have been in
// the middle of something.
func (c *Controller) turn(now time.Time) (leading bool) {
	leading = c.leading()
	if !c.several() || leading == c.led {
		if leading && c.several() {
			c.sweep(now)
		}
		return leading
	}
	if leading {
		found, err := c.options.Backend.Instances(c.keeper.Context())
		if err != nil {
			c.options.Logger.Error().Err(err).Msg("list instances; nothing is started or stopped until it works")
			return false
		}
		c.refresh(found)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.led, c.ledSince = leading, now
	for _, fn := range c.functions {
		fn.recorded = false
	}
	if !leading {
		c.options.Logger.Info().Msg("another replica of the provider starts and stops instances now")
		return false
	}
	c.options.Logger.Info().Int("instances", len(c.instances)).Msg("this replica of the provider starts and stops instances now")
	for _, in := range c.instances {
		switch {
		case !in.retiring || in.stopping:
		case in.fault != nil:
			c.discard(in)
		default:
			c.retire(in, "it was to leave")
		}
	}
	clear(c.broken)
	return true
}

// refresh takes in what the backend has now.
func (c *Controller) refresh(found []cluster.Instance) {
	for _, seen := range found {
		if seen.State == cluster.Exited {
			continue
		}
		c.observe(seen)
	}
}

// sweep stops instances whose function nobody has heard of for a while.
func (c *Controller) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.ledSince) < orphanGrace {
		return
	}
	for id, known := range c.known {
		if _, ok := c.functions[known.Function]; !ok && now.Sub(known.since) >= orphanGrace {
			c.leave(id, known, "its function is gone")
		}
	}
}

// discover takes in an instance that another replica has started. The lock is held.
func (c *Controller) discover(seen cluster.Instance) {
	if seen.State == cluster.Exited || seen.State == cluster.Stopping {
		return
	}
	known := &orphan{Instance: seen, since: time.Now()}
	c.known[seen.ID] = known
	if fn, ok := c.functions[seen.Function]; ok && fn.profile != nil {
		c.claimOne(fn, seen.ID, known)
	}
	c.Wake()
}

// recognise makes an instance one of the revision that is served, and gives it its
// times, if the backend says that it was started for that: another replica was
// quicker to know of it. The lock is held.
func (c *Controller) recognise(in *instance) {
	fn := in.function
	if !c.several() || in.origin != fn.Revision && !fn.knows(&in.Instance) || in.Model != fn.prepared || !sameContent(in.Bundle, fn.bundle) {
		return
	}
	if len(c.table(fn, in.Config.Batch, in.Config.CPU)) == 0 {
		return
	}
	in.Revision, in.times = fn.Revision, fn.times
}

// follows takes in what another replica, the leader, has made of an instance. What
// this one leads, it knows better. The lock is held.
func (c *Controller) follows(in *instance, seen cluster.Instance) {
	if c.led && c.leading() || in.before != nil {
		return
	}
	if seen.Parked != in.Parked {
		in.Parked = seen.Parked
		if in.Parked && !in.away && in.function.dispatcher.Park(in.ID) {
			in.away, in.idleSince = true, time.Now()
		}
	}
	if !seen.Parked {
		c.reconfigure(in, seen.Config)
	}
}

// reconfigure has an instance serve with a config that the leader has given it. The
// lock is held.
func (c *Controller) reconfigure(in *instance, config cluster.Config) {
	fn := in.function
	changed := config != in.Config
	if changed && (in.times != fn.times || len(c.table(fn, config.Batch, config.CPU)) == 0) {
		return
	}
	in.Parked = false
	if changed {
		in.Config, in.config, in.mixed = config, config.String(), time.Now().Add(2*in.exec)
		c.refit(in)
	}
	if in.away {
		in.asked = time.Time{}
		c.back(in)
	}
}

// leaves is for an instance that somebody else has begun to stop: it takes nothing
// new. The lock is held.
func (c *Controller) leaves(in *instance) {
	if in.retiring {
		return
	}
	in.retiring, in.stopping = true, true
	c.keeper.Begin(func() { _ = in.function.dispatcher.Drain(c.keeper.Stops(), in.ID) })
}

// errUnhealthy is the fault of an instance that another replica has lost.
func errUnhealthy(why string) error { return errors.New("another replica lost it: " + why) }
