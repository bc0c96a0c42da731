// Package processes runs ordinary functions on one machine: it keeps each function's program
// and forwarder, and starts and retires instances through a keeper. It does not decide how many
// instances there should be: [replica.Scaler] does. No request passes through it: a request
// without a ready instance only wakes it. Begin with Controller.look.
package processes

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Program is the process that an image's bundle describes.
type Program struct {
	// Dir is the bundle's directory.
	Dir string
	// Env is the bundle's environment. It includes the process settings of the manifest
	// (fprocess, mode, upstream_url).
	Env map[string]string
	// Network is "private" if each instance gets its own network namespace.
	Network string
	// Fingerprint changes with the bundle's content.
	Fingerprint string
}

// Bundles finds the program that a function's image names.
type Bundles interface {
	// Program returns the program, or an error that names what is wrong.
	Program(image string) (Program, error)
}

// Secrets finds the files that hold functions' secrets.
type Secrets interface {
	// File returns the path of the file with a secret's value, or an error that
	// names the secret.
	File(namespace, secret string) (string, error)
}

// Options configure a controller.
type Options struct {
	Backend cluster.Backend
	Bundles Bundles
	Secrets Secrets
	// Validate returns an error that names the variable if a program with this environment could
	// not start in a bundle's directory; nil for no check.
	Validate func(environment map[string]string, bundle string) error
	Metrics  *metrics.Metrics
	Logger   zerolog.Logger
	// Decisions gets what the controller does, and why; nil for nothing.
	Decisions *decisions.Log
	// ColdWait is how long a request without a ready instance may wait. QueueLimit
	// is the maximum number of waiting requests per function.
	ColdWait   time.Duration
	QueueLimit int
	// BodyTimeout is BodyIdle of [forward.Options].
	BodyTimeout time.Duration
	// Tick is the time between two looks at the load. It is ten times as long while
	// nothing happens.
	Tick time.Duration
	// DrainGrace is how long a retired instance may take to answer its requests,
	// unless the function's own timeouts allow longer. StopGrace is how long it may
	// then take to exit.
	DrainGrace, StopGrace time.Duration
	// Dial connects to an instance; the default is net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Controller holds the ordinary functions of one provider.
type Controller struct {
	keeper.Base[*function]
	options Options

	mu        sync.Mutex
	functions map[string]*function
	keeper    *keeper.Keeper[*instance]
}

// New returns a controller that knows the instances which an earlier provider has
// left on the backend; Deploy claims them. Call Run to make it work.
func New(ctx context.Context, o Options) (*Controller, error) {
	c := &Controller{options: o, functions: map[string]*function{}}
	c.Base = keeper.NewBase(&c.mu, c.functions, o.Metrics, keeper.Answers[*function]{
		Describe: (*function).description, Status: (*function).status, Release: c.Release,
	})
	var err error
	c.keeper, err = keeper.New[*instance](ctx, keeper.Options{
		Backend: o.Backend, Logger: o.Logger, Lock: &c.mu, Wake: c.Wake, StopGrace: o.StopGrace, Replicas: keeper.Alone{},
		Decisions: o.Decisions,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run follows the backend's events and looks at the load every tick, and at once
// after an event, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.Loop(ctx, c.options.Tick, keeper.Loop{
		Events: c.options.Backend.Events(), Observe: c.keeper.Observe, Look: c.look,
		Period: keeper.ReadingPeriod, Sample: func(time.Time) { c.keeper.Sample() },
	})
}

// Close stops every instance and waits until all are gone; it kills those that
// remain when ctx ends. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.End(c.keeper.Tasks)
	return c.keeper.Close(ctx)
}
