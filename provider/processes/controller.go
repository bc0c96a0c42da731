// Package processes drives ordinary functions on one machine: it keeps every function's
// program and forwarder, asks [replica.Scaler] how many instances there are to be, and
// makes it so through a keeper. Begin with Controller.look. Nothing here is on a
// request's way but the wake-up that a cold request gives.
package processes

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Program is what an image's bundle says of its process.
type Program struct {
	// Dir is the bundle's directory.
	Dir string
	// Env is the bundle's environment, what its manifest says of the process
	// included (fprocess, mode, upstream_url).
	Env map[string]string
	// Network is "private" for a network namespace of each instance's own.
	Network string
	// Fingerprint changes with the bundle's content.
	Fingerprint string
}

// Bundles finds the program that a function's image names.
type Bundles interface {
	// Program returns an error that names what is wrong if there is none.
	Program(image string) (Program, error)
}

// Secrets finds the files that hold functions' secrets.
type Secrets interface {
	// File returns the file with a secret's value, or an error that names the
	// secret.
	File(namespace, secret string) (string, error)
}

// Options configure a controller.
type Options struct {
	Backend cluster.Backend
	Bundles Bundles
	Secrets Secrets
	Metrics *metrics.Metrics
	Logger  zerolog.Logger
	// ColdWait is how long a request that finds no ready instance may wait;
	// QueueLimit how many may wait per function.
	ColdWait   time.Duration
	QueueLimit int
	// BodyTimeout is forward's BodyIdle.
	BodyTimeout time.Duration
	// Tick is the time between two looks at the load. While nothing happens it
	// is ten times as long.
	Tick time.Duration
	// DrainGrace is how long a retired instance may take to answer what it
	// has, if the function's own timeouts do not allow longer, and StopGrace
	// how long it may then take to leave.
	DrainGrace, StopGrace time.Duration
	// Dial connects to an instance; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Controller holds the ordinary functions of one provider.
type Controller struct {
	options Options
	kick    keeper.Kick

	mu        sync.Mutex
	functions map[string]*function
	keeper    *keeper.Keeper[*instance]
}

// New returns a controller that has found the instances of an earlier provider
// on the backend; Deploy claims them. Run serves.
func New(ctx context.Context, o Options) (*Controller, error) {
	c := &Controller{options: o, kick: keeper.NewKick(), functions: map[string]*function{}}
	var err error
	c.keeper, err = keeper.New[*instance](ctx, keeper.Options{
		Backend: o.Backend, Logger: o.Logger, Lock: &c.mu, Wake: c.Wake, StopGrace: o.StopGrace, Replicas: keeper.Alone{},
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// idleTicks is how many ticks apart the looks are while nothing happens.
const idleTicks = 10

// Run follows the backend's events and looks at the load every tick, and at once
// when something happened, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	keeper.Loop{
		Kick: c.kick, Events: c.options.Backend.Events(), Observe: c.keeper.Observe, Look: c.look,
		Rest:   func(took time.Duration) time.Duration { return keeper.Rest(took, c.options.Tick) },
		Period: keeper.ReadingPeriod, Sample: func(time.Time) { c.keeper.Sample() },
	}.Run(ctx)
}

// Wake makes Run look at the load now.
func (c *Controller) Wake() { c.kick.Now() }

// Close stops every instance and waits until nothing of them is left; those
// that are still there when ctx ends are killed. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.keeper.End()
	for _, fn := range c.functions {
		fn.forwarder.Close()
	}
	c.mu.Unlock()
	return c.keeper.Close(ctx)
}
