package kubernetes

import (
	"context"
	"errors"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// publishFlags are those of a builder that sends what it builds to a registry.
type publishFlags struct{ base string }

func (f *publishFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.base, "builder-base", "", "image, made by \"image base\", on which images are built that faas-cli's --remote-builder sends; they go to the registry that their names say")
}

// publisher brings what faas-cli's remote builder sends to the registry that the
// image's name says, with the credentials of Docker's config ($DOCKER_CONFIG).
func (f *publishFlags) publisher(plain []string) (func(ctx context.Context, to string, b *bundle.Bundle, say func(string, ...any)) error, error) {
	if f.base == "" {
		return nil, errors.New("--payload-secret turns the builder on, and --builder-base is missing: the image on which functions' images are built")
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
