package kubernetes

import (
	"context"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// lookTimeout bounds how long a deployment waits for a registry to describe an image.
// Pulling the image's bundle, if it has one, may take pullTimeout.
const lookTimeout = 10 * time.Second

// bundle returns the bundle in a deployment's image, nil if there is none.
func (i *images) bundle(ctx context.Context, d types.FunctionDeployment) (*image.Bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	look, stop := context.WithTimeout(ctx, lookTimeout)
	defer stop()
	keychain, err := i.keychain(look, d)
	if err != nil {
		return nil, err
	}
	plain := image.WithPlain(i.platform.flags.plain...)
	found, err := image.Resolve(look, d.Image, keychain, plain)
	if err != nil || found.Bundle == "" {
		return nil, err
	}
	b, err := image.Pull(ctx, d.Image, keychain, i.models.root, plain)
	if err != nil {
		return nil, err
	}
	i.makeRoom()
	return b, nil
}

// resolve returns a deployment's image as its registry describes it.
func (i *images) resolve(ctx context.Context, d types.FunctionDeployment) (*image.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	keychain, err := i.keychain(ctx, d)
	if err != nil {
		return nil, err
	}
	return image.Resolve(ctx, d.Image, keychain, image.WithPlain(i.platform.flags.plain...))
}

// brought implements [provider.Defaults]: it returns the annotations in the bundle of the
// deployment's image. The image of a function whose model has a URI need not exist.
func (i *images) brought(ctx context.Context, d types.FunctionDeployment) (map[string]string, error) {
	if isURI(d) {
		return nil, nil
	}
	// The provider may read credentials only in namespaces of functions.
	if allowed, err := i.platform.objects.AllowedNow(d.Namespace); err != nil || !allowed {
		return nil, err
	}
	b, err := i.bundle(ctx, d)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Annotations, nil
}
