package cluster

import "context"

// Backend starts and stops instances. Implementations are safe for concurrent
// use. None of its methods is on the request path.
type Backend interface {
	// Nodes lists the machines and the free resources of each.
	Nodes(ctx context.Context) ([]Node, error)
	// Start creates an instance and returns as soon as it exists (Starting).
	// An event follows when it is Ready or Exited. After an error, nothing of
	// the instance exists.
	Start(ctx context.Context, spec InstanceSpec) (Instance, error)
	// Stop asks an instance to finish its requests and exit. If ctx ends first,
	// Stop kills it. Stop returns once nothing of the instance is left.
	// Stopping an instance that does not exist is not an error.
	Stop(ctx context.Context, id InstanceID) error
	// Resize gives a running instance another CPU quota, which is in force when
	// Resize returns. The rest of the config must not change: batch, GPU share,
	// memory, and Threads, which the engine creates at start. Resize also unparks a
	// parked instance, even with an unchanged config. After an error the instance is
	// as it was before.
	Resize(ctx context.Context, id InstanceID, config Config) error
	// Park makes a ready instance give back its CPU and GPU share. It keeps its
	// memory and the little CPU that health checks need. Parking a parked instance
	// does nothing. After an error the instance is as it was before.
	Park(ctx context.Context, id InstanceID) error
	// Instances lists the instances that exist, including those of an earlier
	// run of the provider.
	Instances(ctx context.Context) ([]Instance, error)
	// Events delivers every change of an instance's state after the call to
	// Instances, in order per instance. Close closes the channel.
	Events() <-chan Instance
	// Usage returns what an instance uses now: CPU in millicores since the
	// last call, memory in bytes.
	Usage(ctx context.Context, id InstanceID) (Resources, error)
	// Close releases the instances without stopping them. The next provider
	// can take them over.
	Close() error
}
