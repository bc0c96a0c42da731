package command

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/variant"
)

// registrar finds the models of bundles with their registered variants, and makes variants for
// functions with com.openfaas.infer.variants: auto.
type registrar struct {
	bundles
	// state is the provider's directory. Variants that the provider makes are below it: a
	// bundle belongs to its user.
	state string
	// models hashes files, and runs children.
	models *childModels
	// one registration runs at a time: times that are measured together are wrong.
	one sync.Mutex
}

var _ control.Bundles = (*registrar)(nil)

// Models implements [control.Bundles].
func (r *registrar) Models(ctx context.Context, f *provider.Function) (dir string, models []control.Model, err error) {
	b, err := r.open(f)
	if err != nil {
		return "", nil, err
	}
	if models, err = control.ModelsOf(b, f, r.registrations(b)); err != nil {
		return "", nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	if len(models) > 1 {
		if err := r.models.Alike(ctx, b); err != nil {
			return "", nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
		}
	}
	return b.Dir, models, nil
}

// open opens the bundle of a function's model.
func (r *registrar) open(f *provider.Function) (*bundle.Bundle, error) {
	b, err := bundle.Open(string(r.bundles), f.Deployment.Image)
	if err != nil {
		return nil, err
	}
	if err := b.CheckModel(); err != nil {
		return nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	return b, nil
}

// registrations are those of the bundle's user, and behind them those of the provider.
func (r *registrar) registrations(b *bundle.Bundle) control.Registrations {
	return control.Registrations{Dirs: []string{r.users(b), r.own(b)}, Hash: r.models.Hash, Remade: true}
}

// users is where "model variants" writes.
func (r *registrar) users(b *bundle.Bundle) string {
	return filepath.Join(b.Dir, variant.RegistrationDir)
}

// own is where the provider writes: the bundle's path below its own directory.
func (r *registrar) own(b *bundle.Bundle) string {
	path, err := filepath.Rel(string(r.bundles), b.Dir)
	if err != nil || !filepath.IsLocal(path) { // Open returns only directories below it.
		path = filepath.Base(b.Dir)
	}
	return filepath.Join(r.state, variant.RegistrationDir, path)
}

// register makes the variants of a function's models, unless their user has made them. A child
// does the work with CPU time that nobody else wants. It does nothing for what it has made
// already.
func (r *registrar) register(ctx context.Context, f *provider.Function) error {
	b, err := r.open(f)
	if err != nil {
		return err
	}
	if f.Inference.Model != "" || b.Engine != bundle.EngineONNX || b.Whole() {
		return nil // Such a model has one variant, itself.
	}
	where := r.registrations(b)
	where.Dirs = where.Dirs[:1]
	if dir, _ := where.Find(b); dir != "" { // A bad one is the reason to make another.
		return nil
	}
	r.one.Lock()
	defer r.one.Unlock()
	_, err = r.models.run(ctx, background, nil, "model", "variants", b.Dir, "--out", r.own(b), "--json")
	return err
}
