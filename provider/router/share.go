package router

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// SharedProvider is a controller with Run and Close, such as [Controller].
type SharedProvider interface {
	provider.Controller
	Describe(name string) (keeper.Description, bool)
	Run(ctx context.Context)
	Close(ctx context.Context) error
}

// Shared is a controller that dispatches each function at one replica, its owner.
type Shared struct {
	SharedProvider
	group *peer.Group
}

// NewShared makes a controller share its functions in a group. The caller runs the group.
func NewShared(c SharedProvider, group *peer.Group) *Shared { return &Shared{c, group} }

// Deploy implements [provider.Controller].
func (c *Shared) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	d, err := c.SharedProvider.Deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	return c.group.Share(f, d), nil
}

// Variants implements [provider.VariantController].
func (c *Shared) Variants(name string) ([]provider.Variant, bool) {
	v, ok := c.SharedProvider.(provider.VariantController)
	if !ok {
		return nil, false
	}
	return v.Variants(name)
}

// Owns implements [provider.SpareController].
func (c *Shared) Owns(name string) bool { return peer.Owns(c.group, name) }

// Left implements [provider.SpareController].
func (c *Shared) Left(name string) (spare.State, bool) {
	s, ok := c.SharedProvider.(provider.SpareController)
	if !ok {
		return spare.State{}, false
	}
	return s.Left(name)
}

// InvokeSpare implements [provider.SpareController]. Only the owner's dispatcher knows which
// instances are free, so the request is not handed on.
func (c *Shared) InvokeSpare(name string, req *frame.Request) (*frame.Response, error) {
	s, ok := c.SharedProvider.(provider.SpareController)
	if !ok {
		return nil, spare.ErrOccupied
	}
	return s.InvokeSpare(name, req)
}

// Remove implements [provider.Controller].
func (c *Shared) Remove(ctx context.Context, name string) error {
	err := c.SharedProvider.Remove(ctx, name)
	if err == nil {
		c.group.Unshare(name)
	}
	return err
}
