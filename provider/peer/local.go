package peer

import (
	"context"

	"github.com/faas-infer/faas-infer/cluster"
)

// Ordinary is a controller of ordinary functions.
type Ordinary interface {
	// Loads returns the loads that it has seen, by functions' full names.
	Loads() map[string]FunctionLoad
	// Wake makes it look at the load now.
	Wake()
}

// Local is a replica's side of a [Group]: what it reports to the others, and what it does at the
// leader's request. Its methods are safe for concurrent use.
type Local interface {
	// Load returns what its dispatchers have seen, with the batches executed after the first
	// since ones. The caller fills in Boot and At.
	Load(since uint64) Load
	// Wake makes it look at the load now.
	Wake()
	// Drain makes it send an instance nothing new. It returns when the instance has no request
	// in flight, or with ctx's error.
	Drain(ctx context.Context, id cluster.InstanceID) error
	// Park makes it send an instance nothing until Serve; false if it needs the instance.
	Park(id cluster.InstanceID) bool
	// Serve tells it that an instance takes batches, and with which config; the zero config
	// means the one before.
	Serve(id cluster.InstanceID, config cluster.Config)
}
