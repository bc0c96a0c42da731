package kubernetes

import (
	"context"
	"errors"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// publishFlags are the flags of a builder that pushes its images to a registry.
type publishFlags struct{ base string }

func (f *publishFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.base, "builder-base", "", "base image, made by \"image base\", for the builds of faas-cli's --remote-builder; the built images are pushed to the registry in their names")
}

// publisher returns a function that builds an image from a bundle of faas-cli's remote
// builder and pushes it to the registry in the image's name. It uses the credentials of
// Docker's config ($DOCKER_CONFIG).
func (f *publishFlags) publisher(plain []string) (func(ctx context.Context, to string, b *bundle.Bundle, say func(string, ...any)) error, error) {
	if f.base == "" {
		return nil, errors.New("--builder-base is missing: --payload-secret turns on the builder, which needs the base image of functions")
	}
	return func(ctx context.Context, to string, b *bundle.Bundle, say func(string, ...any)) error {
		made := func(base v1.Image) (v1.Image, error) { return onBase(ctx, base, b) }
		reference, err := image.Publish(ctx, f.base, to, made, nil, image.WithPlain(plain...))
		if err != nil {
			return err
		}
		say("Pushed %s.", reference)
		return nil
	}, nil
}
