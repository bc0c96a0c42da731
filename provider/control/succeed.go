package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// This file exchanges a function's only instance for another without a gap: the new one starts while the other serves.

// stay notes which instances serve until their successors are ready. A cluster's pods cannot begin with less than they
// are to have and more threads than that needs, so there every instance leaves before. The lock is held.
func (c *driver) stay(plan scaling.Plan) {
	c.staying = nil
	if !c.replica.Alone() {
		return
	}
	for _, s := range plan.Start {
		if in, ok := c.keeper.Instance(s.Succeeds); ok && in.serves() && in.previousConfig == nil {
			if c.staying == nil {
				c.staying = map[cluster.InstanceID]*instance{}
			}
			c.staying[s.Succeeds] = in
		}
	}
}

// succeed starts an instance that is to take another's place. When it is ready, the other stops. Until that is gone,
// it holds the CPU that the other leaves, and may use what nobody else does. If it does not become ready, the other
// stays. The lock is held.
func (c *driver) succeed(in, before *instance, s scaling.Start) {
	target, begins := in.Config, in.Config
	if s.Begins < target.CPU {
		begins.CPU, begins.Most = s.Begins, target.CPU
	}
	in.previousConfig, in.previousTable, before.successor = &begins, in.table, in.ID
	c.keeper.StartAs(in, begins, s.After)
	c.keeper.Begin(func() {
		ready := in.AwaitReady(c.keeper.Context())
		c.mu.Lock()
		defer c.mu.Unlock()
		before.successor = ""
		c.wake()
		if !ready || in.Retiring {
			in.previousConfig, in.previousTable = nil, nil
			return
		}
		if _, there := c.keeper.Instance(before.ID); there {
			c.handovers.stop(before, time.Now(), s.Reason)
		}
		c.keeper.After(in, []cluster.InstanceID{before.ID}, func(ctx context.Context, err error) {
			if err == nil && begins != target {
				err = c.backend.Resize(ctx, in.ID, target)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil && !in.Retiring { // It may use its CPU even so, but others may be given some of it.
				in.function.log.Warn().Str("instance", string(in.ID)).Err(err).Msg("an instance got the CPU of the one before it for use, and not to hold")
			}
			in.previousConfig, in.previousTable = nil, nil
			in.mixedUntil = time.Now().Add(2 * in.exec)
			in.refit()
			c.wake()
		})
	})
}
