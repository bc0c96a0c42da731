// Package control drives the scaling engine: it keeps every function's model,
// profile, dispatcher and instances, asks the engine several times a second
// what to start and what to retire, and does it through the cluster's backend.
// The engine decides; nothing here does. Nothing here is on a request's way but
// the wake-up that a cold request gives.
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
)

// Models looks at model files, outside the provider's own process.
type Models interface {
	// Check returns an error that names what is wrong with a model file, or
	// nil.
	Check(ctx context.Context, file string) error
	// Hash identifies a model file's content.
	Hash(file string) (string, error)
	// Prepare makes the model ready for this host's instances, once, and
	// returns the directory that they load.
	Prepare(ctx context.Context, file string) (prepared string, err error)
	// Measure prepares the model and measures it for batches of up to
	// maxBatch that take no longer than until.
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Profiles keeps measured profiles.
type Profiles interface {
	Profile(key string) (*profiler.Profile, error)
	PutProfile(key string, p *profiler.Profile) error
}

// Bundles finds the model that a function's image names.
type Bundles interface {
	// Model returns the bundle's directory and the model file in it; model is
	// the file that the deployment names, "" for the manifest's.
	Model(image, model string) (bundle, file string, err error)
}

// Options configure a controller.
type Options struct {
	Backend  cluster.Backend
	Engine   *scaling.Engine
	Cold     coldstart.Policy
	Models   Models
	Profiles Profiles
	Bundles  Bundles
	Metrics  *metrics.Metrics
	Logger   zerolog.Logger
	// Policy is the batching policy of functions that name none.
	Policy string
	// ColdWait is how long beyond its SLO a request that finds no ready
	// instance may wait; QueueLimit how many may wait per function.
	ColdWait   time.Duration
	QueueLimit int
	// Tick is the time between two looks at the load.
	Tick time.Duration
	// StopGrace is how long a retired instance may take to leave.
	StopGrace time.Duration
	// ProfileKey adds engine and machine to a profile's key.
	ProfileKey string
}

// Description is all that there is to say of a function.
type Description struct {
	// Instances are those that exist; Ready counts those that serve.
	Instances []cluster.Instance
	Ready     int
	// Cold counts the requests that found no ready instance.
	Cold uint64
	// Wanted is the number of instances that are kept even without load.
	Wanted uint64
	// Measured says that the model's times are known.
	Measured bool
	// Problem is why the function cannot be served now, "" if it can.
	Problem string
}

// Controller holds the functions of one provider.
type Controller struct {
	options Options
	cancel  context.CancelFunc
	ctx     context.Context
	kick    chan struct{}
	loops   sync.WaitGroup

	mu        sync.Mutex
	functions map[string]*function
	instances map[cluster.InstanceID]*instance
	// known are instances of an earlier provider that no function has claimed
	// yet.
	known map[cluster.InstanceID]cluster.Instance
}

// New returns a controller that has found the instances of an earlier provider
// on the backend; Deploy claims them. Run serves.
func New(ctx context.Context, o Options) (*Controller, error) {
	found, err := o.Backend.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	c := &Controller{options: o, kick: make(chan struct{}, 1), functions: map[string]*function{},
		instances: map[cluster.InstanceID]*instance{}, known: map[cluster.InstanceID]cluster.Instance{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, in := range found {
		c.known[in.ID] = in
	}
	return c, nil
}

// Run follows the backend's events and asks the engine every tick, and at once
// when something happened, until ctx ends. Instances of an earlier provider
// that no function has claimed by then are stopped first.
func (c *Controller) Run(ctx context.Context) {
	c.stopUnclaimed()
	ticker := time.NewTicker(c.options.Tick)
	defer ticker.Stop()
	events := c.options.Backend.Events()
	for {
		select {
		case <-ctx.Done():
			return
		case in, ok := <-events:
			if !ok {
				return
			}
			c.observe(in)
		case <-ticker.C:
		case <-c.kick:
		}
		c.scale(time.Now())
	}
}

// Wake makes Run look at the load now.
func (c *Controller) Wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// ErrAbsent is returned for a function that is not deployed.
var ErrAbsent = errors.New("no such function")

// refusal is an error of the deployment's own making.
type refusal struct{ error }

// HTTPStatus is 400.
func (refusal) HTTPStatus() int { return http.StatusBadRequest }

// Unwrap returns what was found.
func (r refusal) Unwrap() error { return r.error }

// Deploy implements [provider.Controller]. What can be seen of the model is
// checked before anything changes; measuring it goes on in the background. A new
// revision keeps the instances of the old one serving until its own are ready.
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	bundle, file, err := c.options.Bundles.Model(f.Deployment.Image, f.Inference.Model)
	if err != nil {
		return nil, refusal{err}
	}
	if err := c.options.Models.Check(ctx, file); err != nil {
		return nil, refusal{fmt.Errorf("image %q: %w", f.Deployment.Image, err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[f.Name]
	if !ok {
		if fn, err = c.newFunction(f); err != nil {
			return nil, err
		}
		c.functions[f.Name] = fn
	} else if err := fn.reconfigure(c, f); err != nil {
		return nil, err
	}
	fn.Function, fn.bundle, fn.replicas = f, bundle, f.Replicas
	fn.preparing++
	c.loops.Go(func() { c.prepare(fn, f, file) })
	c.claim(fn)
	c.Wake()
	return fn.dispatcher, nil
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(_ context.Context, name string) error {
	c.mu.Lock()
	fn, ok := c.functions[name]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	delete(c.functions, name)
	fn.removed = true
	for _, in := range fn.instances {
		c.retire(in, "the function was removed")
	}
	c.mu.Unlock()
	fn.dispatcher.Close()
	c.options.Cold.Forget(name)
	c.options.Metrics.Remove(name)
	return nil
}

// Scale implements [provider.Controller]. To 0 retires all instances; the next
// request undoes it.
func (c *Controller) Scale(name string, replicas uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrAbsent)
	}
	fn.replicas = replicas
	fn.scaledToZero = replicas == 0
	c.Wake()
	return nil
}

// Status implements [provider.Controller].
func (c *Controller) Status(name string) (provider.Status, bool) {
	d, ok := c.Describe(name)
	if !ok {
		return provider.Status{}, false
	}
	s := provider.Status{Replicas: max(uint64(len(d.Instances)), d.Wanted), AvailableReplicas: uint64(d.Ready)}
	for _, in := range d.Instances {
		if used, err := c.options.Backend.Usage(c.ctx, in.ID); err == nil {
			s.Usage = s.Usage.Add(used)
		}
	}
	return s, true
}

// Describe tells what runs of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (Description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return Description{}, false
	}
	d := Description{Problem: cmp.Or(fn.problem, fn.unplaced), Cold: fn.dispatcher.Stats().Cold, Wanted: fn.replicas, Measured: fn.profile != nil}
	for _, in := range fn.sorted() {
		if in.retiring {
			continue
		}
		d.Instances = append(d.Instances, in.Instance)
		if in.State == cluster.Ready {
			d.Ready++
		}
	}
	return d, true
}

// Close stops every instance and waits until nothing of them is left, or ctx
// ends. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.cancel()
	c.mu.Lock()
	for _, fn := range c.functions {
		fn.dispatcher.Close()
	}
	var ids []cluster.InstanceID
	for id := range c.instances {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	failures := make(chan error, len(ids))
	for _, id := range ids {
		go func() { failures <- c.options.Backend.Stop(ctx, id) }()
	}
	var err error
	for range ids {
		err = errors.Join(err, <-failures)
	}
	c.loops.Wait()
	return err
}
