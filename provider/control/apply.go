package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
)

const (
	// lostGrace is how long an instance that broke off an exchange may take
	// to leave.
	lostGrace = 500 * time.Millisecond
)

// start begins one instance. The lock is held; the backend is asked outside of
// it, once the instances whose room it needs are gone.
func (c *Controller) start(fn *function, s scaling.Start) {
	if c.rules.Limits(fn.Function).Joint {
		// With a larger quota it can then take larger batches, too.
		for _, x := range fn.candidates {
			s.Config.Batch = max(s.Config.Batch, x.Config.Batch)
		}
	}
	spec := cluster.InstanceSpec{
		ID: keeper.NewID(fn.Name), Function: fn.Name, Revision: fn.Revision, Node: s.Node, Config: s.Config,
		Bundle: fn.bundle, Model: fn.prepared, Images: fn.Inference.Image, Env: fn.Deployment.EnvVars, Secrets: fn.secrets, Fingerprint: fn.fingerprint,
	}
	in, ok := c.adopt(fn, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	if !ok {
		return // Candidates come from the profile, so they are all in it.
	}
	c.options.Logger.Debug().Str("function", fn.Name).Str("instance", string(spec.ID)).Stringer("config", s.Config).Msg("starting an instance")
	before := c.those(s.After)
	ctx, abandon := context.WithCancel(c.keeper.Context())
	in.abandon = abandon
	c.keeper.Begin(func() {
		defer abandon()
		err := await(ctx, before)
		if err == nil {
			err = c.mayStart(in)
		}
		if err == nil {
			_, err = c.options.Backend.Start(ctx, spec)
		}
		close(in.begun)
		if err != nil {
			c.observe(cluster.Instance{InstanceSpec: spec, State: cluster.Exited, Reason: err.Error()})
		}
	})
}

// those are the instances with these IDs that still exist. The lock is held.
func (c *Controller) those(ids []cluster.InstanceID) (out []*instance) {
	for _, id := range ids {
		if in, ok := c.instances[id]; ok {
			out = append(out, in)
		}
	}
	return out
}

// await returns when the instances are gone.
func await(ctx context.Context, leaving []*instance) error {
	for _, in := range leaving {
		select {
		case <-in.gone:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// retire stops an instance once what it has in flight is answered. The lock is
// held.
func (c *Controller) retire(in *instance, why string) {
	if in.retiring && in.stopping {
		return
	}
	in.retiring = true
	if !c.leading() {
		return // Whoever leads stops it.
	}
	in.stopping = true
	in.abandon()
	c.options.Logger.Info().Str("function", in.Function).Str("instance", string(in.ID)).Str("why", why).Msg("retiring")
	c.keeper.Begin(func() {
		<-in.begun
		ctx, cancel := context.WithTimeout(c.keeper.Stops(), c.options.StopGrace)
		c.drain(ctx, in) // At the end of the grace it is stopped all the same.
		cancel()
		c.keeper.Stop(in.ID, c.options.StopGrace)
	})
}

// lost is what a dispatcher calls for an instance that broke off an exchange:
// whatever is left of it is of no use.
func (c *Controller) lost(id cluster.InstanceID, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[id]
	if !ok || in.retiring {
		return
	}
	in.retiring, in.fault = true, cause
	if !c.leading() {
		c.report(id, cause)
		return
	}
	c.discard(in)
}

// discard stops an instance that is of no use any more. The lock is held.
func (c *Controller) discard(in *instance) {
	in.stopping = true
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).AnErr("cause", in.fault).Msg("lost an instance")
	c.keeper.Begin(func() { c.keeper.Stop(in.ID, lostGrace) })
	c.Wake()
}

// observe takes in an instance's new state.
func (c *Controller) observe(seen cluster.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[seen.ID]
	if !ok {
		c.observeKnown(seen)
		return
	}
	was := in.State
	in.State, in.Network, in.Address, in.Reason = seen.State, seen.Network, seen.Address, seen.Reason
	switch {
	case c.several() && was == seen.State:
		c.follows(in, seen)
	case seen.State == cluster.Stopping && c.several():
		c.leaves(in)
	}
	switch seen.State {
	case cluster.Ready:
		if c.several() && was == cluster.Ready {
			break
		}
		in.ReadyAt = seen.ReadyAt
		in.loaded()
		in.function.failures.Why = ""
		if c.leading() {
			in.function.metrics.ObserveCold(in.ReadyAt.Sub(in.StartedAt))
		}
		if in.serves() {
			in.up(c.rules.Queue(in.function.Function))
		}
	case cluster.Exited:
		c.gone(in)
	}
	c.Wake()
}

// gone forgets an instance that exited. The lock is held.
func (c *Controller) gone(in *instance) {
	delete(in.function.instances, in.ID)
	in.function.order = nil
	delete(c.instances, in.ID)
	delete(c.broken, in.ID)
	close(in.gone)
	served := in.function.dispatcher.Forget(in.ID)
	if in.retiring && in.fault == nil || c.keeper.Ended() {
		return
	}
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Str("reason", in.Reason).Msg("an instance exited")
	if in.Revision == in.function.Revision {
		in.function.failures.Died(time.Now(), in.ReadyAt, served, in.why())
	}
}

// why is why an instance exited, as far as anybody knows.
func (in *instance) why() string {
	if in.Reason == "" && in.fault != nil {
		return in.fault.Error()
	}
	return in.Reason
}
