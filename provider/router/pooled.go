package router

import (
	"context"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
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
type pooled struct {
	*pool.Pool
	pools *pool.Pools
	key   string
}

var (
	_ part                        = pooled{}
	_ provider.WatchedController  = pooled{}
	_ provider.PlanningController = pooled{}
	_ provider.SpareController    = pooled{}
)

// Deploy implements [provider.Controller].
func (p pooled) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	return p.pools.Deploy(ctx, p.key, f)
}

func (p pooled) able(name string) (ready bool, failure string) {
	d, ok := p.Describe(name)
	return ok && (d.Measured || d.Ready > 0), ""
}

// kinds has the part of each kind.
type kinds struct {
	parts map[cluster.Kind]part
	// pools are nil if no functions share instances.
	pools *pool.Pools
}

// part returns the part of a kind.
func (k *kinds) part(kind cluster.Kind) part {
	if key, is := strings.CutPrefix(string(kind), string(poolKind)); is {
		return pooled{k.pools.At(key), k.pools, key}
	}
	return k.parts[kind]
}

// place returns the kind of the part for a deployment, and with whom it may share instances.
func (k *kinds) place(ctx context.Context, f *provider.Function) (kind cluster.Kind, at pool.Place) {
	kind = Kind(f)
	if k.pools == nil || kind != cluster.Model {
		return kind, at
	}
	if at = k.pools.Place(ctx, f); at.Now {
		kind = inPool(at.Key)
	}
	return kind, at
}

// Logs is the name by which the logs of a function's instances are kept: that of its pool if it shares them.
func (c *Controller) Logs(function string) string {
	if fn := c.find(function); fn != nil {
		if p, is := c.part(fn.kind).(pooled); is {
			return p.Pool.Logs(function)
		}
	}
	return function
}

// gather moves the functions that are alone into the pool where a deployed function was placed, in the background.
func (c *Controller) gather(function string, at pool.Place) {
	if c.pools == nil {
		return
	}
	join := c.pools.Placed(function, at, func(name string) bool {
		fn := c.find(name)
		return fn == nil || fn.kind == inPool(at.Key)
	})
	for _, name := range join {
		c.moves.Go(func() { c.joinPool(name) })
	}
}

// joinPool moves a function into the pool where it belongs, unless it is there or has been removed.
func (c *Controller) joinPool(name string) {
	defer c.changing.Lock(name)()
	fn := c.find(name)
	if fn == nil || fn.kind != cluster.Model || c.ctx.Err() != nil {
		return
	}
	kind, _ := c.place(c.ctx, fn.latest)
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

// arrived returns a function that is to move to a kind, and is not on its way between two others any more. If it had not
// arrived yet, it goes on from where it still serves, and abandoned is what it was to become: that keeps passing its
// requests on to where they are served.
func (c *Controller) arrived(ctx context.Context, fn *function, kind cluster.Kind) (from, abandoned *function, err error) {
	l := fn.leaving
	switch {
	case l == nil || l.kind == kind:
		return fn, nil, nil
	case l.turnBack():
		return &function{kind: l.kind, latest: fn.latest, target: l.target}, fn, nil
	}
	select { // Only its last requests are still there.
	case <-l.done:
		return fn, nil, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// warms reports whether an instance must be ready in the part of a kind before a function serves there, because
// it enters or leaves a pool and has one now.
func (k *kinds) warms(fn *function, name string, kind cluster.Kind) bool {
	if kind == cluster.Process || !isPool(kind) && !isPool(fn.kind) {
		return false
	}
	d, ok := k.part(fn.kind).Describe(name)
	return ok && d.Ready > 0
}

// canServe reports whether a function that began its way since can serve where it goes.
func (k *kinds) canServe(name string, way way, since time.Duration) bool {
	ready, _ := k.part(way.to).able(name)
	if d, ok := k.part(way.to).Describe(name); way.warm && since < warmWait {
		return ready && ok && d.Ready > 0
	}
	return ready
}
