package control

import (
	"context"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Peers are the provider's other replicas. A function's queue is in one replica at
// a time, which need not be the leader; what a look at the load must know of it, and
// what must be done there before an instance stops, goes through here.
type Peers interface {
	// Loads returns what each of them last told. It does not wait.
	Loads() []peer.Load
	// Wake has the leader look at the load now. It does not wait.
	Wake()
	// Drain has the others give an instance nothing new, and returns when none of
	// them has anything on it, or with ctx.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Park has the others give an instance nothing until it has come back from
	// being parked; false, and nothing has changed, if one of them needs it.
	Park(ctx context.Context, id cluster.InstanceID) bool
}

// several reports whether the provider has other replicas, or may have.
func (c *Controller) several() bool { return c.options.Leading != nil }

// leading reports whether this replica starts and stops instances.
func (c *Controller) leading() bool { return c.options.Leading == nil || c.options.Leading() }
