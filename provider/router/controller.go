// Package router puts the controllers of the two kinds of functions behind one
// [provider.Controller]: functions with a latency objective, whose instances run models, and
// ordinary functions, whose instances run processes. It splits one backend between the two
// controllers, and moves a function when an update changes its kind, or when it begins or ends to share
// instances with others ([pool.Pool]). It neither scales
// functions nor dispatches requests. Begin with Controller.Deploy in move.go.
package router

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/pool"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ provider.Controller = (*Controller)(nil)

// part is the controller of one kind of function.
type part interface {
	provider.Controller
	// Release is Remove for a function that the other part has taken over.
	Release(ctx context.Context, name string) error
	Describe(name string) (keeper.Description, bool)
	// able reports whether a function that has just been deployed can soon answer
	// requests. failure is why it never will, "" if that is not known.
	able(name string) (ready bool, failure string)
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// models is the part of functions with an objective. A function is able as soon as its
// model's times are known.
type models struct{ *control.Controller }

var _ provider.SpareController = models{}

// Owns implements [provider.SpareController].
func (models) Owns(string) bool { return true }

// Left implements [provider.SpareController].
func (m models) Left(name string) (spare.State, bool) { return control.Left(m.Controller, name) }

// InvokeSpare implements [provider.SpareController].
func (m models) InvokeSpare(name string, req *frame.Request) (*frame.Response, error) {
	return control.InvokeSpare(m.Controller, name, req)
}

func (m models) able(name string) (ready bool, failure string) {
	d, ok := m.Describe(name)
	return ok && (d.Measured || d.Ready > 0), ""
}

// Processes is a controller of ordinary functions: *processes.Controller on a backend, or one
// that runs Deployments on Kubernetes.
type Processes interface {
	provider.Controller
	// Release is Remove for a function that now has an objective.
	Release(ctx context.Context, name string) error
	Describe(name string) (keeper.Description, bool)
	// Run runs functions until ctx ends.
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// ordinary is the part of functions without an objective.
type ordinary struct{ Processes }

// Describe implements part. Ordinary functions need no measurement.
func (o ordinary) Describe(name string) (keeper.Description, bool) {
	d, ok := o.Processes.Describe(name)
	d.Measured = true
	return d, ok
}

// able also returns true if there is no room: then the function's model must go first.
func (o ordinary) able(name string) (ready bool, failure string) {
	d, ok := o.Processes.Describe(name)
	return ok && (d.Ready > 0 || d.Wanted == 0 || d.Unplaced != ""), d.Crash
}

// Controller holds all functions of one provider.
type Controller struct {
	kinds
	log zerolog.Logger
	// changing has a lock for each function that is deployed, removed or moved.
	changing web.KeyedMutex

	mu        sync.Mutex
	functions map[string]*function
	// ctx ends with Close. moves waits for the background part of moves.
	ctx    context.Context
	cancel context.CancelFunc
	moves  sync.WaitGroup
}

// function says which part has a function. It is immutable: a deployment replaces it.
type function struct {
	// kind is that of the part, for a pool [inPool].
	kind   cluster.Kind
	latest *provider.Function
	target *target
	// leaving is its removal from the other kind's controller, nil if it never
	// was there.
	leaving *leaving
}

// New returns a controller in front of the two. If both use a backend, give them the two views
// of [Split].
// Functions share instances in the pools, which run on the first one; nil if none do.
func New(functions *control.Controller, processes Processes, pools *pool.Pools, log zerolog.Logger) *Controller {
	c := newController(models{functions}, ordinary{processes}, log)
	c.pools = pools
	return c
}

func newController(models, processes part, log zerolog.Logger) *Controller {
	c := &Controller{kinds: kinds{parts: map[cluster.Kind]part{cluster.Model: models, cluster.Process: processes}}, functions: map[string]*function{}, log: log}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Kind returns the kind of a function's instances.
func Kind(f *provider.Function) cluster.Kind {
	if f.Inference.IsInference {
		return cluster.Model
	}
	return cluster.Process
}

// Run runs both controllers until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var wait sync.WaitGroup
	for _, p := range c.parts {
		wait.Go(func() { p.Run(ctx) })
	}
	if c.pools != nil {
		wait.Go(func() { c.pools.Run(ctx) })
	}
	wait.Wait()
}

// Close stops every instance and waits until all are gone; it kills those that remain when
// ctx ends. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.cancel()
	c.moves.Wait()
	failures := make(chan error, len(c.parts))
	for _, p := range c.parts {
		go func() { failures <- p.Close(ctx) }()
	}
	var err error
	for range c.parts {
		err = errors.Join(err, <-failures)
	}
	return err
}

// find returns a function, nil if it is not deployed.
func (c *Controller) find(name string) *function {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.functions[name]
}

// in returns the part that has a function, that of models if none has it.
func (c *Controller) in(name string) part {
	if fn := c.find(name); fn != nil {
		return c.part(fn.kind)
	}
	return c.parts[cluster.Model]
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(ctx context.Context, name string) error {
	defer c.changing.Lock(name)()
	fn := c.find(name)
	if fn == nil {
		return nil
	}
	var err error
	if fn.leaving != nil && !fn.leaving.stop() {
		err = c.part(fn.leaving.kind).Release(ctx, name)
	}
	c.mu.Lock()
	delete(c.functions, name)
	c.mu.Unlock()
	if c.pools != nil {
		c.pools.Forget(name)
	}
	return errors.Join(err, c.part(fn.kind).Remove(ctx, name))
}

// Scale implements [provider.Controller]. The function keeps the number when it moves.
func (c *Controller) Scale(name string, replicas uint64) error {
	defer c.changing.Lock(name)()
	if err := c.in(name).Scale(name, replicas); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn := c.functions[name]; fn != nil {
		scaled, latest := *fn, *fn.latest
		latest.Replicas = replicas
		scaled.latest = &latest
		c.functions[name] = &scaled
	}
	return nil
}

// Restoring implements [provider.Controller].
func (c *Controller) Restoring(missing func(function string) bool) {
	if c.pools != nil {
		missing = c.pools.Restoring(missing)
	}
	for _, p := range c.parts {
		p.Restoring(missing)
	}
}

// Status implements [provider.Controller].
func (c *Controller) Status(name string) (provider.Status, bool) {
	s, ok := c.in(name).Status(name)
	if ok && c.pools != nil {
		s.Sharing = cmp.Or(s.Sharing, c.pools.Why(name))
	}
	return s, ok
}

// Variants implements [provider.VariantController].
func (c *Controller) Variants(name string) ([]provider.Variant, bool) {
	v, ok := c.in(name).(provider.VariantController)
	if !ok {
		return nil, false
	}
	return v.Variants(name)
}

// Owns implements [provider.SpareController].
func (c *Controller) Owns(string) bool { return true }

// Left implements [provider.SpareController].
func (c *Controller) Left(name string) (spare.State, bool) {
	s, ok := c.in(name).(provider.SpareController)
	if !ok {
		return spare.State{}, false
	}
	return s.Left(name)
}

// InvokeSpare implements [provider.SpareController].
func (c *Controller) InvokeSpare(name string, req *frame.Request) (*frame.Response, error) {
	s, ok := c.in(name).(provider.SpareController)
	if !ok {
		return nil, spare.ErrOccupied
	}
	return s.InvokeSpare(name, req)
}

// Describe returns the state of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (keeper.Description, bool) {
	return c.in(name).Describe(name)
}
