package processes

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

const (
	// steady is how long an instance must have been ready before one of an
	// earlier deployment goes in exchange. Until settled it is doubted where
	// others before it have not lived.
	steady = time.Second
	// settled is how long an instance must have been ready for its exit to be
	// a mishap and not the function's own fault.
	settled = 10 * time.Second
	// longPast is when failures are forgotten while other instances serve.
	longPast = time.Minute
	// lostGrace is how long an instance that takes no connection may take to
	// leave.
	lostGrace = 500 * time.Millisecond
)

// start begins one instance. The lock is held; the backend is asked outside of
// it.
func (c *Controller) start(fn *function, node string) {
	spec := fn.spec(keeper.NewID(fn.Name), node)
	in := c.adopt(fn, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	ctx, abandon := context.WithCancel(c.keeper.Context())
	in.abandon = abandon
	c.keeper.Begin(func() {
		defer abandon()
		_, err := c.options.Backend.Start(ctx, spec)
		close(in.begun)
		if err != nil {
			c.observe(cluster.Instance{InstanceSpec: spec, State: cluster.Exited, Reason: err.Error()})
		}
	})
}

// retire stops an instance once what it has in flight is answered. The lock is
// held.
func (c *Controller) retire(in *instance, why string) {
	if in.retiring {
		return
	}
	in.retiring = true
	in.abandon()
	c.options.Logger.Info().Str("function", in.Function).Str("instance", string(in.ID)).Str("why", why).Msg("retiring")
	forwarder, grace := in.function.forwarder, drainGrace(in.Env, c.options.DrainGrace)
	c.keeper.Begin(func() {
		<-in.begun
		ctx, cancel := context.WithTimeout(c.keeper.Context(), grace)
		_ = forwarder.Drain(ctx, in.ID) // At the end of the grace it is stopped all the same.
		cancel()
		c.keeper.Stop(in.ID, c.options.StopGrace)
	})
}

// lost is what a forwarder calls for an instance that takes no connection:
// whatever is left of it is of no use.
func (c *Controller) lost(id cluster.InstanceID, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[id]
	if !ok || in.retiring {
		return
	}
	in.retiring, in.fault = true, cause
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(id)).AnErr("cause", cause).Msg("lost an instance")
	c.keeper.Begin(func() { c.keeper.Stop(id, lostGrace) })
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
	in.State, in.Network, in.Address, in.Reason = seen.State, seen.Network, seen.Address, seen.Reason
	switch seen.State {
	case cluster.Ready:
		in.ReadyAt = seen.ReadyAt
		in.function.crash = ""
		in.function.metrics.ObserveCold(in.ReadyAt.Sub(in.StartedAt))
		if !in.retiring {
			in.up()
		}
	case cluster.Exited:
		c.gone(in)
	}
	c.Wake()
}

// gone forgets an instance that exited. The lock is held.
func (c *Controller) gone(in *instance) {
	fn := in.function
	delete(fn.instances, in.ID)
	delete(c.instances, in.ID)
	served := fn.forwarder.Forget(in.ID)
	if in.retiring && in.fault == nil || c.keeper.Ended() {
		return
	}
	c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Str("reason", in.Reason).Msg("an instance exited")
	if in.current() {
		fn.crashed(time.Now(), in, served)
	}
}

// crashed delays the next start if the instance did not live, twice as long
// each time. One that did, or that answered a request at least, is replaced at
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

// proven reports whether an instance of the present deployment can be relied
// upon.
func (fn *function) proven(now time.Time, in *instance) bool {
	if fn.failures > 0 {
		return now.Sub(in.ReadyAt) >= settled
	}
	return now.Sub(in.ReadyAt) >= steady
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
