package control

import (
	"context"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Peers are the provider's other replicas. A function's queue is in one replica at
// a time, which need not be the leader; what a look at the load must know of it, and
// what must be done there before an instance stops, goes through here.
type Peers interface {
	// Loads returns what each of them last told; what was executed is told once. It
	// does not wait.
	Loads() []peer.Load
	// Wake has the leader look at the load now. It does not wait.
	Wake()
	// Drain has the others give an instance nothing new, and returns when none of
	// them has anything on it, or with ctx.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Park has the others give an instance nothing until Serve; false, and nothing
	// has changed, if one of them needs it.
	Park(ctx context.Context, id cluster.InstanceID) bool
	// Serve tells the others that an instance takes batches, and with which config.
	// It does not wait.
	Serve(id cluster.InstanceID, config cluster.Config)
}

// several reports whether the provider has other replicas, or may have.
func (c *Controller) several() bool { return c.options.Leading != nil }

// leading reports whether this replica starts and stops instances.
func (c *Controller) leading() bool { return c.options.Leading == nil || c.options.Leading() }

// missed is what dispatchers call for a request that finds no instance: the replica
// that can start one looks at once.
func (c *Controller) missed() {
	if c.leading() || c.options.Peers == nil {
		c.Wake()
		return
	}
	c.options.Peers.Wake()
}

const (
	// followPause is how often a replica looks whether the leader has found out a
	// model's times, followPatience for how long before it does so itself.
	followPause    = time.Second
	followPatience = 2 * time.Minute
	// orphanGrace is how long an instance may run whose function is not known: the
	// one or the other may have been seen first.
	orphanGrace = time.Minute
	// leftAlone is how long an instance may be kept out of use at the leader's
	// word; by then it is gone or parked, or the leader is.
	leftAlone = 30 * time.Second
)

// follow waits before the n-th look for what the leader has to find out; false once
// it has waited for long.
func (c *Controller) follow(ctx context.Context, n int) bool {
	select {
	case <-ctx.Done():
	case <-time.After(followPause):
	}
	return time.Duration(n)*followPause < followPatience
}

// sameContent reports whether two bundles hold the same model as far as their names
// tell: that of an image names its content, that of a directory does not.
func sameContent(a, b string) bool {
	const digest = "@sha256:"
	return a == b || !strings.Contains(a, digest) && !strings.Contains(b, digest)
}

// mayStart is why an instance is not started now that there is room for it: somebody
// else has begun to lead. It then counts as retired.
func (c *Controller) mayStart(in *instance) error {
	if c.leading() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.retiring, in.stopping = true, true
	return latency.ErrFollowing
}

// drain has no replica use an instance any more, and returns when none does, or when
// ctx ends.
func (c *Controller) drain(ctx context.Context, in *instance) {
	others := make(chan struct{})
	go func() {
		defer close(others)
		if c.options.Peers != nil {
			c.options.Peers.Drain(ctx, in.ID)
		}
	}()
	_ = in.function.dispatcher.Drain(ctx, in.ID) // It is stopped all the same.
	<-others
}

// releaseFromPeers has the other replicas leave an instance alone that is to be parked; false if
// one of them needs it, and then it serves on.
func (c *Controller) releaseFromPeers(in *instance) bool {
	if c.options.Peers == nil || c.options.Peers.Park(c.keeper.Context(), in.ID) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back(in)
	c.Wake()
	return false
}

// tellServes tells the other replicas what an instance is now good for. The lock is
// held.
func (c *Controller) tellServes(in *instance) {
	if c.options.Peers != nil && in.there() {
		c.options.Peers.Serve(in.ID, in.Config)
	}
}

// report keeps for the leader that an instance broke off an exchange. The lock is
// held.
func (c *Controller) report(id cluster.InstanceID, cause error) {
	why := "it broke off an exchange"
	if cause != nil {
		why = cause.Error()
	}
	c.broken[id] = why
	if c.options.Peers != nil {
		c.options.Peers.Wake()
	}
}

// fingerprint is that of a revision's instances. A provider without others does
// without: it was there when they were started.
func (c *Controller) fingerprint(r revision, prepared string) string {
	if !c.several() {
		return ""
	}
	return fingerprintOf(r.Deployment, r.bundle, prepared, r.values, c.options.Engine)
}

// knows reports whether the function's instances would be started as one was.
func (fn *function) knows(in *cluster.Instance) bool {
	return fn.fingerprint != "" && in.Fingerprint == fn.fingerprint
}
