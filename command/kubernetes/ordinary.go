package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/faas-infer/faas-infer/instance/watchdog"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/web"
)

// ordinary controls the ordinary functions of a cluster and refuses images with models.
type ordinary struct {
	*deployments.Controller
	images *images
}

// Deploy implements [provider.Controller]. It refuses an image that holds a model, because
// without an objective there is nothing to run, and variables of our watchdog that mean nothing. It
// accepts an image that it cannot read:
// the kubelet may have other credentials. It reads none of a
// revision that was accepted before: a provider that starts must not wait for a registry.
func (o ordinary) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	if _, accepted := o.images.accepted(f); accepted {
		return o.Controller.Deploy(ctx, f)
	}
	if err := o.images.program(ctx, f); errors.Is(err, bundle.ErrModel) || errors.As(err, new(invalidError)) {
		return nil, web.BadRequest(fmt.Errorf("image %q: %w", f.Deployment.Image, err))
	}
	return o.Controller.Deploy(ctx, f)
}

// program returns an error if the function's image has a bundle without a program.
func (i *images) program(ctx context.Context, f *provider.Function) error {
	b, err := i.bundle(ctx, f.Deployment)
	if err != nil || b == nil {
		return err
	}
	if err := b.CheckProgram(); err != nil {
		return err
	}
	env := b.Environment()
	maps.Copy(env, f.Deployment.EnvVars)
	if process := f.Deployment.EnvProcess; process != "" {
		env["fprocess"] = process
	}
	if err := watchdog.Validate(env, "", ""); err != nil {
		return invalidError{err}
	}
	return nil
}

// invalidError says that a variable of the watchdog means nothing.
type invalidError struct{ error }
