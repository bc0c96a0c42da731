package peer

import (
	"context"

	"github.com/faas-infer/faas-infer/cluster"
)

// Ordinary is a controller of ordinary functions.
type Ordinary interface {
	// Loads is what it has seen, by functions' full names.
	Loads() map[string]FunctionLoad
	// Wake has it look at the load now.
	Wake()
}

// Local is what a replica tells the others and does at the leader's word. Its methods
// are safe for concurrent use.
type Local interface {
	// Load is what its dispatchers have seen, with what was executed after the first
	// since batches; Boot and At are the caller's to fill in.
	Load(since uint64) Load
	// Wake has it look at the load now.
	Wake()
	// Drain has it give an instance nothing new, and returns when nothing of it is in
	// flight, or with ctx's error.
	Drain(ctx context.Context, id cluster.InstanceID) error
	// Park has it give an instance nothing until Serve; false if it needs it.
	Park(id cluster.InstanceID) bool
	// Serve tells it that an instance takes batches, and with which config; the zero
	// one means as before.
	Serve(id cluster.InstanceID, config cluster.Config)
}
