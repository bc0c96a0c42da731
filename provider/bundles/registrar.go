package bundles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/variant"
)

// Registrar finds the models of bundles with their registered variants, and makes variants for
// functions with com.openfaas.infer.variants: auto.
type Registrar struct {
	bundles Dir
	// state is the provider's directory. Variants that the provider makes are below it: a
	// bundle belongs to its user.
	state string
	// Children hashes files, and makes variants and plans. jobs let deployments share these runs.
	Children *children.Models
	jobs     Jobs
	log      zerolog.Logger
	// cutter has the plans of models that are cut over several instances, below state, too.
	cutter Cutter
	Background
}

// New makes a registrar for a directory of bundles and the provider's own.
func New(root Dir, state string, models *children.Models, log zerolog.Logger) *Registrar {
	cutter := NewCutter(CutterOptions{State: state, Models: models, Logger: log})
	return &Registrar{bundles: root, state: state, Children: models, log: log, cutter: cutter}
}

// Close ends what is being planned for suggestions, and BeginTidying, and waits for their end.
func (r *Registrar) Close() error { return errors.Join(r.Background.Close(), r.cutter.Close()) }

var _ control.Bundles = (*Registrar)(nil)

// Models implements [control.Bundles].
func (r *Registrar) Models(ctx context.Context, f *provider.Function) (dir string, models []control.Model, err error) {
	b, err := r.open(f)
	if err != nil {
		return "", nil, err
	}
	r.used(b)
	models, err = control.ModelsOf(b, f, r.registrations(b))
	if err == nil && len(models) > 1 {
		err = r.Children.Alike(ctx, b)
	}
	if err == nil {
		models, err = r.cutter.WithPlans(ctx, f, models)
	}
	if err != nil {
		return b.Dir, nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	return b.Dir, models, nil
}

// uncut returns a function's models without the ways to cut them.
func (r *Registrar) uncut(f *provider.Function) ([]control.Model, error) {
	b, err := r.open(f)
	if err != nil {
		return nil, err
	}
	return control.ModelsOf(b, f, r.registrations(b))
}

// Cuttable implements Cuttable of [control.Options].
func (r *Registrar) Cuttable(ctx context.Context, f *provider.Function) []control.Model {
	models, err := r.uncut(f)
	if err != nil {
		return nil
	}
	return r.cutter.Suggestions(ctx, f, models)
}

// open opens the bundle of a function's model.
func (r *Registrar) open(f *provider.Function) (*bundle.Bundle, error) {
	b, err := r.bundles.Open(f.Deployment.Image)
	if err != nil {
		return nil, err
	}
	if err := b.CheckModel(); err != nil {
		return nil, fmt.Errorf("image %q: %w", f.Deployment.Image, err)
	}
	return b, nil
}

// registrations are those of the bundle's user, and behind them those of the provider.
func (r *Registrar) registrations(b *bundle.Bundle) control.Registrations {
	return control.Registrations{Dirs: []string{r.users(b), r.own(b)}, Hash: r.Children.Hash, Remade: true}
}

// users is where "model variants" writes.
func (r *Registrar) users(b *bundle.Bundle) string {
	return filepath.Join(b.Dir, variant.RegistrationDir)
}

// own is where the provider writes: the bundle's path below its own directory.
func (r *Registrar) own(b *bundle.Bundle) string {
	path, err := filepath.Rel(string(r.bundles), b.Dir)
	if err != nil || !filepath.IsLocal(path) { // Open returns only directories below it.
		path = filepath.Base(b.Dir)
	}
	return filepath.Join(r.state, variant.RegistrationDir, path)
}

// Register makes the variants of a function's models, unless their user has made them. A child
// does the work with CPU time that nobody else wants. It does nothing for what it has made
// already. Calls for models with the same content share the work: a deployment that changes
// something else does not make it begin again.
func (r *Registrar) Register(ctx context.Context, f *provider.Function) error {
	if f.Inference.Partition != "" {
		models, err := r.uncut(f)
		if err == nil {
			err = r.cutter.Make(ctx, f, models)
		}
		if err != nil || !f.Inference.Auto {
			return err
		}
	}
	for {
		if err := r.registerNow(ctx, f); !errors.Is(err, errOvertaken) {
			return err
		}
	}
}

// registerNow is Register for the bundle as it is now. It returns errOvertaken if the bundle has
// changed meanwhile.
func (r *Registrar) registerNow(ctx context.Context, f *provider.Function) error {
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
		r.jobs.drop(r.own(b))
		return nil
	}
	key, err := r.key(b)
	if err != nil {
		return err
	}
	return r.jobs.Run(ctx, r.own(b), key, func(ctx context.Context) error {
		_, err := r.Children.Run(ctx, children.Background, b.Dir, "model", "variants", b.Dir, "--out", r.own(b), "--json")
		return err
	})
}

// key identifies what variants of a bundle's models are made of.
func (r *Registrar) key(b *bundle.Bundle) (string, error) {
	data, models, err := Contents(b, r.Children.Hash, identify)
	if err != nil {
		return "", err
	}
	metric := ""
	if b.Validation != nil {
		metric = b.Validation.Metric
	}
	return fmt.Sprintf("%s %s\n%s", metric, data, models), nil
}

// largeData is the size in bytes of labelled data above which this process does not read it: that
// takes CPU time from requests, some 200 ms for so much.
const largeData = 256 << 20

// identify returns the hash of labelled data if they are small, otherwise a stamp of the files: then
// a copy counts as other data.
func identify(data string) (string, error) {
	size := int64(0)
	err := filepath.WalkDir(data, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if size > largeData {
		return children.Stamp(data)
	}
	return labelled.Hash(data)
}
