package router

import (
	"context"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/pool"
)

// poolKind begins the kind of functions in a pool; the pool's key follows.
const poolKind cluster.Kind = "pool "

// warmWait is how long a function that comes into a pool waits for an instance there. There may be no room
// for one before the function's own instances go.
const warmWait = 10 * time.Second

// inPool is the kind of the functions in the pool with a key.
func inPool(key string) cluster.Kind { return poolKind + cluster.Kind(key) }

func isPool(kind cluster.Kind) bool { return strings.HasPrefix(string(kind), string(poolKind)) }

// pooled is the part of the members of one pool.
type pooled struct{ *pool.Pool }

var (
	_ part                        = pooled{}
	_ provider.WatchedController  = pooled{}
	_ provider.PlanningController = pooled{}
	_ provider.SpareController    = pooled{}
)

func (p pooled) able(name string) (ready bool, failure string) {
	d, ok := p.Describe(name)
	return ok && (d.Measured || d.Ready > 0), ""
}

// poolOf returns the pool of a kind.
func poolOf(c *Controller, kind cluster.Kind) *pool.Pool {
	return c.pools.At(strings.TrimPrefix(string(kind), string(poolKind)))
}

// part returns the part of a kind.
func (c *Controller) part(kind cluster.Kind) part {
	if isPool(kind) {
		return pooled{poolOf(c, kind)}
	}
	return c.parts[kind]
}

// place returns the kind of the part for a deployment.
func (c *Controller) place(ctx context.Context, f *provider.Function) cluster.Kind {
	kind := Kind(f)
	if c.pools == nil || kind != cluster.Model {
		return kind
	}
	if key := c.pools.Place(ctx, f); key != "" {
		return inPool(key)
	}
	return kind
}

// gather moves the functions that are alone into the pool which a deployed function shares with them, in the background.
func gather(ctx context.Context, c *Controller, f *provider.Function) {
	if c.pools == nil {
		return
	}
	join := c.pools.Placed(ctx, f, func(name, key string) bool {
		fn := c.find(name)
		return fn == nil || fn.kind == inPool(key)
	})
	for _, name := range join {
		c.moves.Go(func() { joinPool(c, name) })
	}
}

// joinPool moves a function into the pool where it belongs, unless it is there or has been removed.
func joinPool(c *Controller, name string) {
	defer c.changing.Lock(name)()
	fn := c.find(name)
	if fn == nil || fn.kind != cluster.Model || c.ctx.Err() != nil {
		return
	}
	kind := c.place(c.ctx, fn.latest)
	if kind == fn.kind {
		return
	}
	if _, err := c.deploy(c.ctx, fn.latest, kind); err != nil && c.ctx.Err() == nil {
		c.log.Warn().Str("function", name).Err(err).Msg("the function goes on without sharing instances")
	}
}

// way is a function's way to another part. warm: it had instances, so one must be ready there before it serves.
type way struct {
	to   cluster.Kind
	warm bool
}

// arrived returns a function that is to move to a kind, and is not on its way between two others any more.
func arrived(ctx context.Context, c *Controller, fn *function, name string, kind cluster.Kind) (*function, error) {
	l := fn.leaving
	if l == nil || l.kind == kind {
		return fn, nil
	}
	if fn.target.before.Load() == nil { // Only its last requests are still there.
		select {
		case <-l.done:
			return fn, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if l.stop() {
		return fn, nil
	}
	// It serves still where it was, and goes on from there.
	back := &function{kind: l.kind, latest: fn.latest, target: l.target}
	c.put(name, back)
	return back, c.part(fn.kind).Release(ctx, name)
}

// warms reports whether an instance must be ready in the part of a kind before a function serves there, because
// it enters or leaves a pool and has one now.
func warms(c *Controller, fn *function, name string, kind cluster.Kind) bool {
	if kind == cluster.Process || !isPool(kind) && !isPool(fn.kind) {
		return false
	}
	d, ok := c.part(fn.kind).Describe(name)
	return ok && d.Ready > 0
}

// warmed returns the deployment that makes the part of a kind keep an instance until cool, if that is asked.
func warmed(c *Controller, f *provider.Function, kind cluster.Kind, warm bool) *provider.Function {
	switch {
	case !warm:
		return f
	case isPool(kind):
		poolOf(c, kind).Warm(f.Name)
		return f
	}
	with := *f
	with.Replicas = max(1, f.Replicas)
	return &with
}

// canServe reports whether a function that began its way since can serve where it goes.
func canServe(c *Controller, name string, way way, since time.Duration) bool {
	ready, _ := c.part(way.to).able(name)
	if d, ok := c.part(way.to).Describe(name); way.warm && since < warmWait {
		return ready && ok && d.Ready > 0
	}
	return ready
}

// cool ends what warmed has begun.
func cool(ctx context.Context, c *Controller, f *provider.Function, way way) {
	if !way.warm {
		return
	}
	var err error
	if isPool(way.to) {
		err = poolOf(c, way.to).Cool(ctx, f.Name)
	} else if m, ok := c.parts[way.to].(models); ok {
		err = control.Keep(m.Controller, f.Name, f.Replicas)
	}
	if err != nil && ctx.Err() == nil {
		c.log.Error().Str("function", f.Name).Err(err).Msg("could not say how many instances the function keeps")
	}
}
