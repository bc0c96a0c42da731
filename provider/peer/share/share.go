// Package share puts a controller of both kinds of functions into a group of
// replicas: requests of functions with an objective go to their owners.
package share

import (
	"context"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/kinds"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Provider is a controller with its life, as kinds.Controller is.
type Provider interface {
	provider.Controller
	Describe(name string) (kinds.Description, bool)
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// Controller is a controller whose functions are dispatched by one replica each.
type Controller struct {
	Provider
	group *peer.Group
}

// New puts a controller into a group, which the caller runs.
func New(c Provider, group *peer.Group) *Controller { return &Controller{c, group} }

// Deploy implements [provider.Controller].
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	d, err := c.Provider.Deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	return c.group.Share(f, d), nil
}

// Remove implements [provider.Controller].
func (c *Controller) Remove(ctx context.Context, name string) error {
	err := c.Provider.Remove(ctx, name)
	if err == nil {
		c.group.Unshare(name)
	}
	return err
}
