// Package share puts a controller of both kinds of functions into a group of
// replicas: requests of functions with an objective go to their owners.
package share

import (
	"context"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/kinds"
	"github.com/faas-infer/faas-infer/provider/peer"
)

var _ provider.Controller = (*Controller)(nil)

// Controller is a controller whose functions are dispatched by one replica each.
type Controller struct {
	*kinds.Controller
	group *peer.Group
}

// New puts a controller into a group.
func New(c *kinds.Controller, group *peer.Group) *Controller { return &Controller{c, group} }

// Deploy implements [provider.Controller].
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	d, err := c.Controller.Deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	return c.group.Share(f, d), nil
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(ctx context.Context, name string) error {
	err := c.Controller.Remove(ctx, name)
	if err == nil {
		c.group.Unshare(name)
	}
	return err
}

// Run runs the controller and the group until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.group.Run(ctx)
	}()
	c.Controller.Run(ctx)
	<-done
}
