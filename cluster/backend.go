package cluster

import "context"

// Backend starts and stops instances. Implementations are safe for concurrent
// use. None of its methods is on a request's way.
type Backend interface {
	// Nodes lists the machines with what is free on each.
	Nodes(ctx context.Context) ([]Node, error)
	// Start begins an instance and returns as soon as it exists (Starting);
	// an event tells when it is Ready or has Exited. An error means that
	// nothing was left behind.
	Start(ctx context.Context, spec InstanceSpec) (Instance, error)
	// Stop asks an instance to finish what it has and leave; when ctx ends
	// first, it is killed. It returns once nothing of the instance is left.
	// Stopping one that does not exist is not an error.
	Stop(ctx context.Context, id InstanceID) error
	// Resize gives a running instance another CPU quota, which holds when it
	// returns. All else of the config must stay: batch, GPU share, memory, and
	// Threads, which the engine has made at its start. A parked instance takes up
	// its share again by it, also with the config that it had. After an error all
	// is as it was.
	Resize(ctx context.Context, id InstanceID, config Config) error
	// Park has a ready instance give back its CPU and GPU share, but for what it
	// takes to answer whether it is well; it keeps its memory. A parked one stays
	// so. After an error all is as it was.
	Park(ctx context.Context, id InstanceID) error
	// Instances lists the instances that exist, those of an earlier run of
	// the provider included.
	Instances(ctx context.Context) ([]Instance, error)
	// Events delivers every change of an instance's state after the call to
	// Instances, in order per instance. The channel is closed by Close.
	Events() <-chan Instance
	// Usage returns what an instance uses now: CPU in millicores since the
	// last call, memory in bytes.
	Usage(ctx context.Context, id InstanceID) (Resources, error)
	// Close lets go of the instances without stopping them, so that a next
	// provider can take them over.
	Close() error
}
