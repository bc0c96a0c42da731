package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// This file is what a controller does because its provider has other replicas. Who leads and what the
// others tell is [peer.Replica]'s.

var _ peer.Controlled = (*Controller)(nil)

// turn takes its turn: this replica leads, or does not, during one look. Whoever begins to
// lead has followed up to now: it knows the instances and the load, and takes in once more
// what the backend has, as a parting leader may have been in the middle of something.
func (c *Controller) turn() (leads bool) {
	leads, changed, err := c.options.Replica.Turn(func() error {
		found, err := c.options.Backend.Instances(c.keeper.Context())
		if err == nil {
			c.keeper.TakeOver(found)
		}
		return err
	})
	switch {
	case err != nil:
		c.options.Logger.Error().Err(err).Msg("list instances; nothing is started or stopped until it works")
	case changed && leads:
		c.options.Logger.Info().Msg("this replica of the provider starts and stops instances now")
	case changed:
		c.options.Logger.Info().Msg("another replica of the provider starts and stops instances now")
	}
	if changed {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, fn := range c.functions {
			fn.Unrecord()
		}
	}
	return leads
}

// hear takes in what the other replicas have told. Of the instances that were to be left
// alone for something that has not come, one that was to be parked serves again, and one
// that was to be stopped is reported as of no use, since its connections are gone. The lock
// is held.
func (c *Controller) hear(news peer.News) {
	if !c.options.Replica.Led() {
		for _, id := range news.Overdue {
			in, ok := c.keeper.Instance(id)
			if ok && in.Retiring && !in.Stopping {
				c.options.Replica.Lost(id, errLeftOver)
			}
		}
	} else {
		for id, why := range news.Lost {
			c.keeper.LostElsewhere(id, why)
		}
	}
	for _, id := range news.Overdue {
		c.options.Replica.Settled(id)
		if in, ok := c.keeper.Instance(id); ok && in.away && !in.Parked {
			in.back()
		}
	}
}

// errLeftOver is the fault of an instance that was to be stopped, and was not.
var errLeftOver = errors.New("it was to be stopped, and is still there")

// stats is what all replicas have seen of the function's requests, until it is asked
// again. The lock is held.
func (c *Controller) stats(fn *function) dispatch.Stats {
	fn.dispatcher.Read(&fn.stats)
	c.options.Replica.Add(fn.Name, &fn.stats)
	return fn.stats
}

// Seen implements [keeper.Instance]: it takes in what another replica, the leader, has
// made of an instance. The leader itself knows better.
func (in *instance) Seen(before cluster.State, seen cluster.Instance) {
	replica := in.function.replica
	if before != seen.State || replica.Led() && replica.Leads() || in.before != nil {
		return
	}
	if seen.Parked != in.Parked {
		in.Parked = seen.Parked
		if in.Parked && !in.away && in.function.dispatcher.Park(in.ID) {
			in.away, in.idleSince = true, time.Now()
		}
	}
	if !seen.Parked {
		in.reconfigure(seen.Config)
	}
}

// reconfigure has an instance serve with a config that the leader has given it.
func (in *instance) reconfigure(config cluster.Config) {
	changed := config != in.Config
	if changed && !in.can(config) {
		return
	}
	in.Parked = false
	if changed {
		in.Config, in.config, in.mixed = config, config.String(), time.Now().Add(2*in.exec)
		in.refit()
	}
	if in.away {
		in.function.replica.Settled(in.ID)
		in.back()
	}
}

// recognise makes an instance one of the revision that is served, and gives it its
// times, if the backend says that it was started for that: another replica was
// quicker to know of it.
func (in *instance) recognise() {
	fn, a := in.function, in.function.artefact(in.Artefact.Name)
	if fn.replica.Alone() || a == nil || in.origin != fn.Revision && !fn.knows(&in.Instance) || in.Model != a.Model || !sameContent(in.Bundle, a.Bundle) {
		return
	}
	if len(a.table(in.Config.Batch, in.Config.CPU)) > 0 {
		in.Revision, in.times = fn.Revision, a.times
	}
}

// discovered takes over instances that another replica has started. The lock is held.
func (c *Controller) discovered(function string) {
	if fn, ok := c.functions[function]; ok && fn.measured() {
		c.claim(fn)
	}
}

// EachStats implements [peer.Controlled].
func (c *Controller) EachStats(each func(function string, s dispatch.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, fn := range c.functions {
		each(name, fn.dispatcher.Stats())
	}
}

// Leave implements [peer.Controlled].
func (c *Controller) Leave(ctx context.Context, id cluster.InstanceID) error {
	c.mu.Lock()
	in, ok := c.keeper.Instance(id)
	if !ok {
		c.mu.Unlock()
		return nil
	}
	in.Retiring = true
	c.mu.Unlock()
	return in.function.dispatcher.Drain(ctx, id)
}

// Rest implements [peer.Controlled].
func (c *Controller) Rest(id cluster.InstanceID) (rests, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.keeper.Instance(id)
	if !ok || !in.serves() {
		return true, false // It gives it nothing.
	}
	since := in.function.dispatcher.Stats().Instances[id]
	if !in.function.dispatcher.Park(id) {
		return false, false
	}
	in.away, in.idleSince = true, since
	return true, true
}

// Resume implements [peer.Controlled].
func (c *Controller) Resume(id cluster.InstanceID, config cluster.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.keeper.Instance(id)
	if !ok || !in.There() || in.before != nil {
		return
	}
	if config == (cluster.Config{}) {
		config = in.Config
	}
	in.reconfigure(config)
}

// sameContent reports whether two bundles hold the same model as far as their names
// tell: that of an image names its content, that of a directory does not.
func sameContent(a, b string) bool {
	const digest = "@sha256:"
	return a == b || !strings.Contains(a, digest) && !strings.Contains(b, digest)
}
