package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/web"
)

// ordinary are the ordinary functions of a cluster, of which none is a model.
type ordinary struct {
	*deployments.Controller
	images *images
}

// Deploy implements [provider.Controller]. An image with a model in it has nothing to
// run without an objective. The kubelet finds out about images that cannot be looked at,
// which may have other credentials.
func (o ordinary) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	if err := o.images.program(ctx, f); errors.Is(err, bundle.ErrModel) {
		return nil, web.BadRequest(fmt.Errorf("image %q: %w", f.Deployment.Image, err))
	}
	return o.Controller.Deploy(ctx, f)
}

// program returns an error if the function's image has a bundle that is no program.
func (i *images) program(ctx context.Context, f *provider.Function) error {
	b, err := i.bundle(ctx, f.Deployment)
	if err != nil || b == nil {
		return err
	}
	return b.CheckProgram()
}
