package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

const (
	// settled is how long an instance must have been ready for its exit to be
	// a mishap and not the function's own fault.
	settled = 10 * time.Second
	// longPast is when failures are forgotten while other instances serve.
	longPast = time.Minute
	// lostGrace is how long an instance that broke off an exchange may take
	// to leave.
	lostGrace = 500 * time.Millisecond
)

// start begins one instance. The lock is held; the backend is asked outside of
// it, once the instances whose room it needs are gone.
func (c *Controller) start(fn *function, s scaling.Start) {
	spec := cluster.InstanceSpec{
		ID: newID(fn.Name), Function: fn.Name, Revision: fn.Revision, Node: s.Node, Config: s.Config,
		Bundle: fn.bundle, Model: fn.prepared, Images: fn.Inference.Image, Env: fn.Deployment.EnvVars, Secrets: fn.secrets, Fingerprint: fn.fingerprint,
	}
	in, ok := c.adopt(fn, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	if !ok {
		return // Candidates come from the profile, so they are all in it.
	}
	before := c.those(s.After)
	ctx, abandon := context.WithCancel(c.ctx)
	in.abandon = abandon
	c.begin(func() {
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
	c.begin(func() {
		<-in.begun
		ctx, cancel := context.WithTimeout(c.stops, c.options.StopGrace)
		c.drain(ctx, in) // At the end of the grace it is stopped all the same.
		cancel()
		c.stop(in.ID, c.options.StopGrace)
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
	c.begin(func() { c.stop(in.ID, lostGrace) })
	c.Wake()
}

// stop stops an instance and tries again if the backend fails, until Close,
// which stops all that are left and tells of failures itself.
func (c *Controller) stop(id cluster.InstanceID, grace time.Duration) {
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(c.stops, grace)
		err := c.options.Backend.Stop(ctx, id)
		cancel()
		if err == nil || c.ctx.Err() != nil {
			return
		}
		c.options.Logger.Error().Str("instance", string(id)).Err(err).Msg("stop instance; it is tried again")
		select {
		case <-c.ctx.Done():
		case <-time.After(retryMeasure(n)):
		}
	}
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
		in.function.crash = ""
		if c.leading() {
			in.function.metrics.ObserveCold(in.ReadyAt.Sub(in.StartedAt))
		}
		if in.serves() {
			in.up(c.queue(in.function.Function))
		}
	case cluster.Exited:
		c.gone(in)
	}
	c.Wake()
}

// gone forgets an instance that exited. The lock is held.
func (c *Controller) gone(in *instance) {
	delete(in.function.instances, in.ID)
	delete(c.instances, in.ID)
	delete(c.broken, in.ID)
	close(in.gone)
	served := in.function.dispatcher.Forget(in.ID)
	if in.retiring && in.fault == nil || c.ctx.Err() != nil {
		return
	}
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Str("reason", in.Reason).Msg("an instance exited")
	if in.Revision == in.function.Revision {
		in.function.crashed(time.Now(), in, served)
	}
}

// crashed delays the next start if the instance did not live, twice as long
// each time. One that did, or that answered a batch at least, is replaced at
// once: whatever ended it, the function works.
func (fn *function) crashed(now time.Time, in *instance, served bool) {
	when := "before it was ready"
	if !in.ReadyAt.IsZero() {
		if served || now.Sub(in.ReadyAt) >= settled {
			fn.failures = 0
			return
		}
		when = "soon after it was ready"
	}
	fn.failures++
	fn.notBefore = now.Add(backoff(fn.failures))
	fn.crash = fmt.Sprintf("an instance exited %s: %s", when, in.Reason)
	if in.Reason == "" && in.fault != nil {
		fn.crash = fmt.Sprintf("an instance exited %s: %v", when, in.fault)
	}
}

// recover forgets the failures while in serves: once an instance that came after
// them has lived, or when they are long past.
func (fn *function) recover(now time.Time, in *instance) {
	if fn.failures == 0 || now.Before(fn.notBefore) {
		return
	}
	lived := !in.ReadyAt.Before(fn.notBefore) && now.Sub(in.ReadyAt) >= settled
	if lived || now.Sub(fn.notBefore) >= longPast {
		fn.failures, fn.crash = 0, ""
	}
}

// backoff is the pause after the n-th failed start in a row: 0.2 s, 0.4 s, …,
// at most 30 s.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n, 10), 30*time.Second)
}
