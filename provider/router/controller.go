// Package router puts the controllers of the two kinds of functions behind one:
// those with a latency objective, whose instances run models, and ordinary ones,
// whose instances run processes. It shares one backend out between them, and
// moves a function from one to the other when an update changes its kind.
package router

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

var _ provider.Controller = (*Controller)(nil)

// part is the controller of one kind.
type part interface {
	provider.Controller
	// Release is Remove for a function that the other part has taken over.
	Release(ctx context.Context, name string) error
	Describe(name string) (keeper.Description, bool)
	// able reports whether requests of a function that has just been deployed
	// will be answered without much waiting, or why they will not be at all.
	able(name string) (ready bool, failure string)
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// models are functions with an objective. They are served once their model has
// been measured; before that, nothing is too late.
type models struct{ *control.Controller }

func (m models) able(name string) (ready bool, failure string) {
	d, ok := m.Describe(name)
	return ok && (d.Measured || d.Ready > 0), ""
}

// Processes is the controller of ordinary functions: *processes.Controller, whose
// instances are a backend's, or another that runs them in its own way.
type Processes interface {
	provider.Controller
	// Release is Remove for a function that has become a model's.
	Release(ctx context.Context, name string) error
	Describe(name string) (keeper.Description, bool)
	// Run runs functions until ctx ends.
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// ordinary are functions without one.
type ordinary struct{ Processes }

// Describe implements part: nothing has to be measured.
func (o ordinary) Describe(name string) (keeper.Description, bool) {
	d, ok := o.Processes.Describe(name)
	d.Measured = true
	return d, ok
}

// able: where there is no room, what was before must go first.
func (o ordinary) able(name string) (ready bool, failure string) {
	d, ok := o.Processes.Describe(name)
	return ok && (d.Ready > 0 || d.Wanted == 0 || d.Unplaced != ""), d.Crash
}

// Controller holds all functions of one provider.
type Controller struct {
	parts map[cluster.Kind]part
	log   zerolog.Logger

	mu        sync.Mutex
	functions map[string]*function
	// ctx ends with Close; moves counts the functions that move.
	ctx    context.Context
	cancel context.CancelFunc
	moves  sync.WaitGroup
}

// function is where a function is. It never changes: a deployment puts another
// in its place.
type function struct {
	kind   cluster.Kind
	target *target
	// leaving is its way out of the other kind's controller, nil if it never
	// was there.
	leaving *leaving
}

// New puts the two controllers behind one. Where both have a backend, these should
// be Split's.
func New(functions *control.Controller, processes Processes, log zerolog.Logger) *Controller {
	return newController(models{functions}, ordinary{processes}, log)
}

func newController(models, processes part, log zerolog.Logger) *Controller {
	c := &Controller{parts: map[cluster.Kind]part{cluster.Model: models, cluster.Process: processes}, functions: map[string]*function{}, log: log}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Kind is what a function's instances are.
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
	wait.Wait()
}

// Close stops every instance and waits until nothing of them is left; those
// that are still there when ctx ends are killed. Run must have returned.
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

// find returns where a function is, nil if nowhere.
func (c *Controller) find(name string) *function {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.functions[name]
}

// in is the controller that a function is in; that of models if in none.
func (c *Controller) in(name string) part {
	if fn := c.find(name); fn != nil {
		return c.parts[fn.kind]
	}
	return c.parts[cluster.Model]
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(ctx context.Context, name string) error {
	fn := c.find(name)
	if fn == nil {
		return nil
	}
	var err error
	if fn.leaving != nil && !fn.leaving.stop() {
		err = c.parts[fn.leaving.kind].Release(ctx, name)
	}
	c.mu.Lock()
	delete(c.functions, name)
	c.mu.Unlock()
	return errors.Join(err, c.parts[fn.kind].Remove(ctx, name))
}

// Scale implements [provider.Controller].
func (c *Controller) Scale(name string, replicas uint64) error {
	return c.in(name).Scale(name, replicas)
}

// Status implements [provider.Controller].
func (c *Controller) Status(name string) (provider.Status, bool) { return c.in(name).Status(name) }

// Describe tells what runs of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (keeper.Description, bool) {
	return c.in(name).Describe(name)
}
