package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// start begins one instance. The lock is held; the backend is asked outside of
// it.
func (c *Controller) start(fn *function, s scaling.Start) {
	spec := cluster.InstanceSpec{
		ID: newID(fn.Name), Function: fn.Name, Revision: fn.Revision, Node: s.Node, Config: s.Config,
		Bundle: fn.bundle, Model: fn.prepared, Env: fn.Deployment.EnvVars,
	}
	c.adopt(fn, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	var before []<-chan struct{}
	for _, id := range s.After {
		if in, ok := c.instances[id]; ok {
			before = append(before, in.gone)
		}
	}
	c.loops.Go(func() {
		for _, gone := range before {
			select {
			case <-gone:
			case <-c.ctx.Done():
			}
		}
		if _, err := c.options.Backend.Start(c.ctx, spec); err != nil {
			c.observe(cluster.Instance{InstanceSpec: spec, State: cluster.Exited, Reason: err.Error()})
		}
	})
}

// newID names an instance after its function, with 48 random bits behind.
func newID(function string) cluster.InstanceID {
	name, _, _ := strings.Cut(function, ".")
	if len(name) > 40 {
		name = name[:40]
	}
	var b [6]byte
	rand.Read(b[:])
	return cluster.InstanceID(name + "-" + hex.EncodeToString(b[:]))
}

// retire stops an instance once what it has in flight is answered. The lock is
// held.
func (c *Controller) retire(in *instance, why string) {
	if in.retiring {
		return
	}
	in.retiring = true
	c.options.Logger.Info().Str("function", in.Function).Str("instance", string(in.ID)).Str("why", why).Msg("retiring")
	c.loops.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.options.StopGrace)
		defer cancel()
		_ = in.function.dispatcher.Drain(ctx, in.ID) // At the end of the grace it is stopped all the same.
		c.stop(in.ID)
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
	in.retiring = true
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(id)).AnErr("cause", cause).Msg("lost an instance")
	c.loops.Go(func() { c.stop(id) })
	c.Wake()
}

// observe takes in an instance's new state.
func (c *Controller) observe(seen cluster.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[seen.ID]
	if !ok {
		if known, ok := c.known[seen.ID]; ok {
			known.State, known.Network, known.Address, known.ReadyAt = seen.State, seen.Network, seen.Address, seen.ReadyAt
			c.known[seen.ID] = known
			if seen.State == cluster.Exited {
				delete(c.known, seen.ID)
			}
		}
		return
	}
	began := in.StartedAt
	in.State, in.Network, in.Address, in.Reason = seen.State, seen.Network, seen.Address, seen.Reason
	switch seen.State {
	case cluster.Ready:
		in.ReadyAt = seen.ReadyAt
		in.function.failures, in.function.problem = 0, ""
		in.function.metrics.ObserveCold(in.ReadyAt.Sub(began))
		if !in.retiring {
			c.up(in)
		}
	case cluster.Exited:
		c.gone(in)
	}
	c.Wake()
}

// up lets a ready instance take batches.
func (c *Controller) up(in *instance) {
	in.function.dispatcher.Up(c.describe(in, 0), in.Network, in.Address)
}

// describe is what the batching policy needs to know of an instance.
func (c *Controller) describe(in *instance, rate float64) batching.Instance {
	table := in.function.profile.Table(in.Config.Batch, in.Config.CPU)
	config := in.Config
	config.Batch = len(table)
	return batching.Instance{ID: in.ID, Config: config, Exec: table, Rate: rate}
}

// gone forgets an instance that exited. One that never became ready delays the
// next start, twice as long each time.
func (c *Controller) gone(in *instance) {
	fn := in.function
	delete(fn.instances, in.ID)
	delete(c.instances, in.ID)
	close(in.gone)
	fn.dispatcher.Forget(in.ID)
	if in.retiring {
		return
	}
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Str("reason", in.Reason).Msg("an instance exited")
	if !in.ReadyAt.IsZero() {
		return
	}
	fn.failures++
	fn.notBefore = time.Now().Add(backoff(fn.failures))
	fn.problem = fmt.Sprintf("an instance exited before it was ready: %s", in.Reason)
}

// backoff is the pause after the n-th failed start in a row: 0.2 s, 0.4 s, …,
// at most 30 s.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n, 10), 30*time.Second)
}
