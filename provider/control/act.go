package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// driver carries out the engine's plan, after upToDate has removed what does not fit any more. It
// passes over instances that are gone. The lock is held during its methods.
type driver struct {
	mu        *sync.Mutex
	keeper    *keeper.Keeper[*instance]
	functions map[string]*function
	backend   cluster.Backend
	replica   *peer.Replica
	handovers *handovers
	pairs     *pairs
	wake      func()
	// now is the time of the plan. staying has the instances of its stops that serve until their successors do.
	now     time.Time
	staying map[cluster.InstanceID]*instance
}

var _ systems.Driver = (*driver)(nil)

// Stop implements [systems.Driver].
func (c *driver) Stop(s scaling.Stop) {
	switch in, ok := c.keeper.Instance(s.ID); {
	case !ok, c.staying[s.ID] != nil:
	case in.Role == cluster.Shadow:
		if !in.Retiring && in.leaving == "" {
			decided(in.function, c.now, decisions.Stop, about(in, s.Reason))
		}
		c.pairs.leave(in, string(s.Why))
	default:
		c.handovers.stop(in, c.now, s.Reason)
	}
}

// Pair implements [systems.Driver].
func (c *driver) Pair(p scaling.Pair) {
	if in, ok := c.keeper.Instance(p.ID); ok && in.Role == cluster.Shadow {
		if in.Body != p.Body {
			decided(in.function, c.now, decisions.Pair, about(in, p.Reason))
		}
		c.pairs.pair(in, p.Body)
	}
}

// Resize implements [systems.Driver].
func (c *driver) Resize(r scaling.Resize) {
	if in, ok := c.keeper.Instance(r.ID); ok {
		c.resize(in, r)
	}
}

// Park implements [systems.Driver].
func (c *driver) Park(p scaling.Park) {
	if in, ok := c.keeper.Instance(p.ID); ok {
		c.park(in, p.Reason)
	}
}

// Unpark implements [systems.Driver].
func (c *driver) Unpark(u scaling.Unpark) {
	if in, ok := c.keeper.Instance(u.ID); ok {
		c.unpark(in, u)
	}
}

// Start implements [systems.Driver].
func (c *driver) Start(s scaling.Start) { c.start(c.functions[s.Function], s) }

// upToDate returns the plan without what no longer fits: starts for functions that were
// removed or deployed again, or that no longer serve the artefact, unparks of instances that
// do not wait for one any more, and the stops that only these needed. The lock is held.
func (c *driver) upToDate(plan scaling.Plan) scaling.Plan {
	return plan.Without(func(s scaling.Start) bool {
		// An instance that was planned for an earlier deployment may not suit this one.
		fn, ok := c.functions[s.Function]
		return !ok || fn.Revision != s.Revision || fn.artefact(s.Artefact) == nil
	}, func(u scaling.Unpark) bool {
		in, ok := c.keeper.Instance(u.ID)
		return !ok || !in.Parked || in.Retiring
	})
}

// start starts one instance. The lock is held.
func (c *driver) start(fn *function, s scaling.Start) {
	a := fn.artefact(s.Artefact)
	if s.Config.GPU == 0 && s.Role == cluster.Body { // A larger batch takes more of a GPU's memory than was planned.
		s.Config.Batch = max(s.Config.Batch, fn.rules.Limits(fn.Function).Largest(a.candidates))
	}
	spec := cluster.InstanceSpec{
		ID: keeper.NewID(fn.Name), Function: fn.Name, Revision: fn.Revision, Node: s.Node, Nodes: s.Nodes, Config: s.Config,
		Artefact: a.Artefact, Env: fn.Deployment.EnvVars, Secrets: fn.secrets, Fingerprint: a.fingerprint,
	}
	spec.Awaited = fn.stats.Waiting > 0 && !slices.ContainsFunc(fn.Sorted(), (*instance).serves)
	if s.Config.GPU > 0 {
		spec.Original = a.file
	}
	if spec.Role, spec.Part, spec.Body = s.Role, s.Part, s.Body; s.Role == cluster.Body {
		spec.Paired = takesShadows(fn, a, s.Config)
	}
	if s.Device != "" {
		spec.Devices = []string{s.Device}
	}
	// The plan's configs come from the profile, so adopt finds their times.
	starting := cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()}
	if in := c.handovers.adopt(fn, starting); in != nil {
		if s.Why == scaling.Replacement && slices.ContainsFunc(fn.Sorted(), (*instance).earlier) {
			s.Why = scaling.NewRevision // For the engine both are the same.
		}
		decided(fn, c.now, decisions.Start, about(in, s.Reason))
		s.After = slices.DeleteFunc(slices.Clone(s.After), func(id cluster.InstanceID) bool { return c.staying[id] != nil })
		if before := c.staying[s.Succeeds]; before != nil {
			c.succeed(in, before, s)
			return
		}
		c.keeper.Start(in, s.After)
	}
}

// resize changes an instance's CPU quota in the background, and then its times. Until it
// is done the instance holds the larger of the two quotas on its node. The engine sees the
// new config from now on. If the change fails, the engine sees the old config again, and
// the next change is not tried before a pause that grows with each failure. The instance
// keeps its own batch size, which may be larger than that of the engine's config. An
// instance that is starting gets the quota when it is ready. The lock is held.
func (c *driver) resize(in *instance, r scaling.Resize) {
	fn, before, next := in.function, in.Config, in.Config
	next.CPU = r.Config.CPU
	if starts := in.State == cluster.Starting && !in.Retiring; !starts && !in.serves() || in.previousConfig != nil || time.Now().Before(in.resizeAfter) || next == before || !in.can(next) {
		return
	}
	f := about(in, r.Reason)
	f.CPU, f.FromCPU = next.CPU, before.CPU
	in.Config, in.previousConfig, in.previousTable = next, &before, in.table
	in.fit()
	c.keeper.Begin(func() {
		var err error
		if in.AwaitReady(c.keeper.Context()) {
			err = c.backend.Resize(c.keeper.Context(), in.ID, next)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		in.previousConfig, in.previousTable = nil, nil
		if in.State == cluster.Exited {
			return
		}
		if err != nil {
			in.Config = before
			in.refit()
			in.resizeFailures++
			in.resizeAfter = time.Now().Add(pause(in.resizeFailures))
			if why := err.Error(); why != fn.fixed { // A cluster may forbid it to all instances.
				fn.fixed = why
				fn.log.Warn().Str("instance", string(in.ID)).Err(err).Msg("could not change an instance's CPU quota")
				decided(fn, time.Now(), decisions.Resize, failed(f, err))
			}
			return
		}
		fn.log.Debug().Str("instance", string(in.ID)).Stringer("from", before).Stringer("to", next).Msg("changed an instance's CPU quota")
		decided(fn, time.Now(), decisions.Resize, f)
		in.resizeFailures, in.resizeAfter = 0, time.Time{}
		in.config, in.mixedUntil = in.Config.String(), time.Now().Add(2*in.exec)
		in.refit()
		c.announce(in)
		fn.recordRatios()
		c.wake()
	})
}

// park takes the CPU and GPU share from an instance in the background, if the instance is
// still idle. The instance gets no batches from now on. It holds its share until parking is
// done. The lock is held.
func (c *driver) park(in *instance, r scaling.Reason) {
	since := statsOf(in.function).Instances[in.ID]
	if !in.serves() || in.neverPark || in.previousConfig != nil || !in.function.dispatcher.Park(in.ID) {
		return
	}
	in.away, in.idleSince = true, since
	c.keeper.Begin(func() {
		released := c.replica.Release(c.keeper.Context(), in.ID)
		var err error
		if released {
			err = c.backend.Park(c.keeper.Context(), in.ID)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch log := in.function.log.With().Str("instance", string(in.ID)).Logger(); {
		case !released: // Another replica needs it, so it keeps serving.
			in.back()
		case err != nil:
			log.Warn().Err(err).Msg("could not park an instance; it keeps its share")
			decided(in.function, time.Now(), decisions.Park, failed(about(in, r), err))
			in.neverPark = true
			c.announce(in)
			in.back()
		default:
			log.Debug().Msg("parked an instance")
			decided(in.function, time.Now(), decisions.Park, about(in, r))
			in.Parked = true
		}
		c.wake() // Requests may have arrived meanwhile.
	})
}

// unpark gives a parked instance a share in the background, as soon as the instances whose
// room it needs are gone, and then makes it serve. It holds its share from now on. If it
// cannot get the share, it is retired. The lock is held.
func (c *driver) unpark(in *instance, x scaling.Unpark) {
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
			err = c.backend.Resize(ctx, in.ID, config)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case in.Retiring || in.State == cluster.Exited:
		case err != nil:
			in.function.log.Warn().Str("instance", string(in.ID)).Err(err).Msg("could not unpark an instance")
			decided(in.function, time.Now(), decisions.Unpark, failed(about(in, x.Reason), err))
			c.keeper.Retire(in, "it could not get its share back")
		default:
			decided(in.function, time.Now(), decisions.Unpark, about(in, x.Reason))
			in.config = config.String()
			if config != was {
				in.mixedUntil = time.Now().Add(2 * in.exec)
			}
			in.fit()
			in.back()
			c.announce(in)
		}
		c.wake()
	})
}

// announce tells the other replicas that an instance serves, and with which config. The
// lock is held.
func (c *driver) announce(in *instance) {
	if in.There() {
		c.replica.Announce(in.ID, in.Config)
	}
}
