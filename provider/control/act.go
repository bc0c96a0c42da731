package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// driver does what is planned, with the controller's lock held.
type driver struct{ *Controller }

var _ systems.Driver = driver{}

// Stop implements [systems.Driver].
func (c driver) Stop(s scaling.Stop) {
	if in, ok := c.keeper.Instance(s.ID); ok {
		c.keeper.Retire(in, string(s.Why))
	}
}

// Resize implements [systems.Driver].
func (c driver) Resize(r scaling.Resize) {
	if in, ok := c.keeper.Instance(r.ID); ok {
		c.resize(in, r)
	}
}

// Park implements [systems.Driver].
func (c driver) Park(p scaling.Park) {
	if in, ok := c.keeper.Instance(p.ID); ok {
		c.park(in)
	}
}

// Unpark implements [systems.Driver].
func (c driver) Unpark(u scaling.Unpark) {
	if in, ok := c.keeper.Instance(u.ID); ok {
		c.unpark(in, u)
	}
}

// Start implements [systems.Driver].
func (c driver) Start(s scaling.Start) {
	if fn, ok := c.functions[s.Function]; ok {
		c.start(fn, s)
	}
}

// start begins one instance. The lock is held.
func (c *Controller) start(fn *function, s scaling.Start) {
	a := fn.artefact(s.Artefact)
	if a == nil {
		return // The artefact that was planned for is not served any more.
	}
	s.Config.Batch = max(s.Config.Batch, fn.rules.Limits(fn.Function).Largest(a.candidates))
	spec := cluster.InstanceSpec{
		ID: keeper.NewID(fn.Name), Function: fn.Name, Revision: fn.Revision, Node: s.Node, Config: s.Config,
		Artefact: a.Artefact, Env: fn.Deployment.EnvVars, Secrets: fn.secrets, Fingerprint: fn.fingerprint,
	}
	// Candidates come from the profile, so they are all in it.
	if in := c.adopt(fn, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()}); in != nil {
		c.keeper.Start(in, s.After)
	}
}

// adopt keeps an instance under its function; nil if the profile says nothing of its
// config. The lock is held.
func (c *Controller) adopt(fn *function, seen cluster.Instance) *instance {
	a := fn.artefact(seen.Artefact.Name)
	if a == nil {
		return nil
	}
	table := a.table(seen.Config.Batch, seen.Config.CPU)
	if len(table) == 0 {
		return nil
	}
	in := &instance{function: fn, table: table, times: a.times, config: seen.Config.String(), origin: seen.Revision}
	c.keeper.Add(in, &fn.Fleet, seen)
	in.fit()
	return in
}

// claim takes over the instances of an earlier provider, or of another replica, that are
// this function's. It needs the profile, for their times. The lock is held.
func (c *Controller) claim(fn *function) {
	c.keeper.Claim(fn.Name, func(known cluster.Instance) (*instance, string) {
		in := c.adopt(fn, known)
		if in == nil {
			return nil, "its config is not among those that were measured"
		}
		switch a := fn.artefact(in.Artefact.Name); {
		case in.Model != a.Model || !sameContent(in.Bundle, a.Bundle):
			// The image's content has changed while no provider ran.
			in.Revision, in.times = 0, nil
		case fn.knows(&in.Instance):
			in.Revision = fn.Revision
		}
		if in.away = in.Parked; in.away {
			in.idleSince = time.Now()
		}
		return in, ""
	})
}

// resize gives an instance another CPU quota in the background, and then the times
// that it has with it. Until then it holds of its node what it has and what it is
// to have, whichever is more. The engine, which sees the new config from now on,
// plans with what the instance has if it could not be had, and asks again after a
// pause that gets longer each time. Only the quota changes: the engine plans with the
// largest batch that the objective allows, which may be smaller than the instance's own.
// An instance that starts gets the quota as soon as it is ready. The lock is held.
func (c *Controller) resize(in *instance, r scaling.Resize) {
	fn, before, next := in.function, in.Config, in.Config
	next.CPU = r.Config.CPU
	if starts := in.State == cluster.Starting && !in.Retiring; !starts && !in.serves() || in.before != nil || time.Now().Before(in.fixed) || next == before || !in.can(next) {
		return
	}
	in.Config, in.before, in.still = next, &before, in.table
	in.fit()
	c.keeper.Begin(func() {
		var err error
		if in.AwaitReady(c.keeper.Context()) {
			err = c.options.Backend.Resize(c.keeper.Context(), in.ID, next)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		in.before, in.still = nil, nil
		if in.State == cluster.Exited {
			return
		}
		if err != nil {
			in.Config = before
			in.refit()
			in.refused++
			in.fixed = time.Now().Add(pause(in.refused))
			fn.log.Warn().Str("instance", string(in.ID)).Err(err).Msg("change an instance's CPU quota")
			return
		}
		fn.log.Debug().Str("instance", string(in.ID)).Stringer("from", before).Stringer("to", next).Msg("changed an instance's CPU quota")
		in.refused, in.fixed = 0, time.Time{}
		in.config, in.mixed = in.Config.String(), time.Now().Add(2*in.exec)
		in.refit()
		c.announce(in)
		fn.recordRatios()
		c.Wake()
	})
}

// park has an instance give back its CPU and GPU share in the background, if it still
// has nothing to do. From now on it gets no batches; until it has given its share
// back, it holds it. The lock is held.
func (c *Controller) park(in *instance) {
	since := c.stats(in.function).Instances[in.ID]
	if !in.serves() || in.stays || in.before != nil || !in.function.dispatcher.Park(in.ID) {
		return
	}
	in.away, in.idleSince = true, since
	c.keeper.Begin(func() {
		released := c.options.Replica.Release(c.keeper.Context(), in.ID)
		var err error
		if released {
			err = c.options.Backend.Park(c.keeper.Context(), in.ID)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch log := in.function.log.With().Str("instance", string(in.ID)).Logger(); {
		case !released: // Another replica needs it: it serves on.
			in.back()
		case err != nil:
			log.Warn().Err(err).Msg("park an instance; it keeps its share")
			in.stays = true
			c.announce(in)
			in.back()
		default:
			log.Debug().Msg("parked an instance")
			in.Parked = true
		}
		c.Wake() // Requests may have come meanwhile.
	})
}

// unpark has a parked instance take up a share in the background, once those whose
// room it needs are gone, and then serve. Its room is taken from now on. If it cannot
// have the share, it is of no use. The lock is held.
func (c *Controller) unpark(in *instance, x scaling.Unpark) {
	if !in.Parked || in.Retiring {
		return
	}
	was, config := in.Config, in.Config
	if config.CPU = x.Config.CPU; config != was && !in.can(config) {
		config = was
	}
	in.Parked, in.Config, in.idleSince = false, config, time.Time{}
	c.keeper.After(in, x.After, func(ctx context.Context, err error) {
		if err == nil {
			err = c.options.Backend.Resize(ctx, in.ID, config)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case in.Retiring || in.State == cluster.Exited:
		case err != nil:
			in.function.log.Warn().Str("instance", string(in.ID)).Err(err).Msg("unpark an instance")
			c.keeper.Retire(in, "it cannot take up its share again")
		default:
			in.config = config.String()
			if config != was {
				in.mixed = time.Now().Add(2 * in.exec)
			}
			in.fit()
			in.back()
			c.announce(in)
		}
		c.Wake()
	})
}

// announce tells the other replicas what an instance is now good for. The lock is held.
func (c *Controller) announce(in *instance) {
	if in.There() {
		c.options.Replica.Announce(in.ID, in.Config)
	}
}
