package bundles

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// Registrar finds the models of bundles with their variants, and has more made of them for functions that
// ask for that.
type Registrar struct {
	bundles Dir
	// Downloads has the models that come from URIs; nil refuses these.
	Downloads *Downloads
	// Children hashes files, and makes variants and plans.
	Children *children.Models
	log      zerolog.Logger
	variants Variants
	// tokenizers count the tokens of requests' texts.
	tokenizers *Tokenizers
	// cutter has the plans of models that are cut over several instances, below state, too.
	cutter Cutter
	Background
}

// New makes a registrar for a directory of bundles and the provider's own.
func New(root Dir, state string, models *children.Models, log zerolog.Logger) *Registrar {
	cutter := NewCutter(CutterOptions{State: state, Models: models, Logger: log})
	// Variants and plans that the provider makes are below its own directory: a bundle belongs to its user.
	variants := VariantsIn(Place{Bundles: root, State: state, Hash: models.Hash, Children: models})
	return &Registrar{bundles: root, Children: models, log: log, variants: variants, cutter: cutter, tokenizers: NewTokenizers(log)}
}

// Close ends what is being planned for suggestions, and BeginTidying, and waits for their end.
func (r *Registrar) Close() error {
	err := errors.Join(r.Background.Close(), r.cutter.Close())
	if r.Downloads != nil {
		err = errors.Join(err, r.Downloads.Close())
	}
	return err
}

var (
	_ control.Bundles  = (*Registrar)(nil)
	_ control.Improver = (*Registrar)(nil)
)

// Models implements [control.Bundles].
func (r *Registrar) Models(ctx context.Context, f *provider.Function) (dir string, models []control.Model, err error) {
	b, err := r.open(ctx, f)
	if err != nil {
		return "", nil, err
	}
	r.variants.Used(b)
	models, err = r.variants.Models(b, f)
	if err == nil && len(models) > 1 {
		err = r.Children.Alike(ctx, b)
	}
	if err == nil {
		models, err = r.cutter.WithPlans(ctx, f, models)
	}
	if err == nil {
		err = SetTexts(ctx, r.Children, b, f, models)
	}
	if err != nil {
		return b.Dir, nil, fmt.Errorf("%s: %w", f.ModelFrom(), err)
	}
	if b.Text != nil {
		counter := r.tokenizers.Counter(f, func(ctx context.Context) (*bundle.Bundle, error) { return r.open(ctx, f) })
		for i := range models {
			models[i].Counter = counter
		}
	}
	return b.Dir, models, nil
}

// uncut returns a function's models without the ways to cut them.
func (r *Registrar) uncut(ctx context.Context, f *provider.Function) ([]control.Model, error) {
	b, err := r.open(ctx, f)
	if err != nil {
		return nil, err
	}
	return r.variants.Models(b, f)
}

// Cuttable implements Cuttable of [control.Options].
func (r *Registrar) Cuttable(ctx context.Context, f *provider.Function) []control.Model {
	models, err := r.uncut(ctx, f)
	if err != nil {
		return nil
	}
	return r.cutter.Suggestions(ctx, f, models)
}

// open opens the bundle of a function's model.
func (r *Registrar) open(ctx context.Context, f *provider.Function) (*bundle.Bundle, error) {
	if f.Inference.Source != "" && r.Downloads != nil {
		return r.Downloads.open(ctx, f)
	}
	if f.Inference.Source != "" {
		return nil, annotation.SourceError(f.Inference.Source, "this provider downloads no models; put the model into the function's image")
	}
	b, err := r.bundles.Open(f.Deployment.Image)
	if err != nil {
		return nil, err
	}
	if err := b.CheckModel(); err != nil {
		return nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	return b, nil
}

// Wanted implements [control.Improver]. Variants depend on the bundle only, the ways to cut its models also
// on limits and objective.
func (r *Registrar) Wanted(f *provider.Function, bundle string) string {
	switch in := &f.Inference; {
	case r.variants.Wanted(f):
		return bundle
	case in.Partition != "":
		return CutFor(f, bundle)
	}
	return ""
}

// CutFor identifies the ways to cut a bundle's models for a function.
func CutFor(f *provider.Function, bundle string) string {
	in := &f.Inference
	return fmt.Sprintf("%s for %v with batches of %d on %d instances with %d bytes", bundle, in.SLO, in.MaxBatch, in.PartitionInstances, in.Limits.Memory)
}

// Improve implements [control.Improver]: it makes the ways to cut a function's models and the variants of
// these, as far as the deployment asks for them.
func (r *Registrar) Improve(ctx context.Context, f *provider.Function) error {
	if f.Inference.Partition != "" {
		models, err := r.uncut(ctx, f)
		if err == nil {
			err = r.cutter.Make(ctx, f, models)
		}
		if err != nil {
			return err
		}
	}
	if !r.variants.Wanted(f) {
		return nil
	}
	return r.variants.Make(ctx, f, func() (*bundle.Bundle, error) { return r.open(ctx, f) })
}
