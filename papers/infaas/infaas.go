// Package infaas is INFaaS (ATC'21) beside the core, as far as it leaves the path of requests alone: the
// variants of a bundle's models, which are registered with their accuracy, made in 8 bits in the
// background, and named by a deployment. Which request gets which variant, and which variants serve, is
// the core's: package variant, and the steps of scaling. Begin with [Variants]; package registration is
// what is known of variants.
//
// Variants have no store of workdir: they lie file by file in a directory of the user's choice, beside others' files
// and with the directories of other images in it. A lock keeps a second run out; [Variants.Tidy] removes unused ones.
//
// Importing the package registers the variants, the annotations, "model variants" and "model evaluate".
package infaas

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/faas-infer/faas-infer/command/plug"
	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

func init() {
	for _, key := range keys {
		annotation.Register(key)
	}
	plug.Command("model", newVariantsCommand)
	plug.Command("model", newEvaluateCommand)
	bundles.RegisterVariants(func(p bundles.Place) bundles.Variants { return New(p) })
}

// Variants finds the registered variants of bundles' models, and makes some for functions with
// com.openfaas.infer.variants: auto.
type Variants struct {
	bundles.Place
	// jobs let deployments share what a child makes.
	jobs bundles.Jobs
}

// New returns the variants of a place.
func New(p bundles.Place) *Variants { return &Variants{Place: p} }

var _ bundles.Variants = (*Variants)(nil)

// Models implements [bundles.Variants].
func (v *Variants) Models(b *bundle.Bundle, f *provider.Function) ([]control.Model, error) {
	return modelsOf(b, f, v.registrations(b))
}

// Wanted implements [bundles.Variants].
func (v *Variants) Wanted(f *provider.Function) bool { return isAuto(f) }

// registrations are those of the bundle's user, and behind them those of the provider.
func (v *Variants) registrations(b *bundle.Bundle) registrations {
	where := registrations{Dirs: []string{v.users(b)}, Hash: v.Hash}
	if v.State != "" {
		where.Dirs, where.Remade = append(where.Dirs, v.own(b)), true
	}
	return where
}

// users is where "model variants" writes.
func (v *Variants) users(b *bundle.Bundle) string { return filepath.Join(b.Dir, registration.Dir) }

// own is where the provider writes: the bundle's path below its own directory.
func (v *Variants) own(b *bundle.Bundle) string {
	path, err := filepath.Rel(string(v.Bundles), b.Dir)
	if err != nil || !filepath.IsLocal(path) { // Open returns only directories below it.
		path = filepath.Base(b.Dir)
	}
	return filepath.Join(v.State, registration.Dir, path)
}

// Make implements [bundles.Variants]. A child does the work with CPU time that nobody else wants. It does
// nothing for what it has made already, or for what the bundle's user has made. Calls for models with the
// same content share the work: a deployment that changes something else does not make it begin again.
func (v *Variants) Make(ctx context.Context, f *provider.Function, open func() (*bundle.Bundle, error)) error {
	for {
		b, err := open()
		if err != nil {
			return err
		}
		if err := v.makeOf(ctx, f, b); !errors.Is(err, bundles.ErrOvertaken) {
			return err
		}
	}
}

// makeOf is Make for the bundle as it is now. It returns [bundles.ErrOvertaken] if the bundle has changed
// meanwhile.
func (v *Variants) makeOf(ctx context.Context, f *provider.Function, b *bundle.Bundle) error {
	if f.Inference.Model != "" || b.Engine != bundle.EngineONNX || b.Whole() {
		return nil // Such a model has one variant, itself.
	}
	where := v.registrations(b)
	where.Dirs = where.Dirs[:1]
	if dir, _ := where.Find(b); dir != "" { // A bad one is the reason to make another.
		v.jobs.Drop(v.own(b))
		return nil
	}
	key, err := v.key(b)
	if err != nil {
		return err
	}
	return v.jobs.Run(ctx, v.own(b), key, func(ctx context.Context) error {
		_, err := v.Children.Run(ctx, children.Background, b.Dir, "model", "variants", b.Dir, "--out", v.own(b), "--json")
		return err
	})
}

// key identifies what variants of a bundle's models are made of.
func (v *Variants) key(b *bundle.Bundle) (string, error) {
	data, models, err := Contents(b, v.Hash, identify)
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
