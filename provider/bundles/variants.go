package bundles

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// Variants finds the variants of bundles' models, and makes some. A paper registers it.
type Variants interface {
	// Models lists the models that a function's deployment admits, at least one: the file that it names,
	// or those of the bundle's manifest and their variants. The error names what is not there.
	Models(b *bundle.Bundle, f *provider.Function) ([]control.Model, error)
	// Wanted reports whether a function's deployment asks for variants that Make makes.
	Wanted(f *provider.Function) bool
	// Make makes them. It takes minutes, or no time if they are there. It opens the bundle again if that
	// changes meanwhile.
	Make(ctx context.Context, f *provider.Function, open func() (*bundle.Bundle, error)) error
	// Used notes that a function of a bundle is being deployed.
	Used(b *bundle.Bundle)
	// Tidy removes what Make has made and neither a function of the images nor an instance has used for
	// [UnusedFor], and returns the directories.
	Tidy(now time.Time, images []string, running []cluster.Instance) (removed []string, err error)
}

// Place says where bundles are, and where their variants are made.
type Place struct {
	Bundles Dir
	// State is the directory of the provider that makes variants, "" if they come with the bundles.
	State string
	// Hash identifies a file's content as [model.ContentHash] does.
	Hash func(file string) (string, error)
	// Children make variants; nil if State is "".
	Children *children.Models
}

// variants makes the variants of a place.
var variants = func(Place) Variants { return noVariants{} }

// RegisterVariants registers the source of variants. It must be called while packages are initialised, and
// panics at a second call.
func RegisterVariants(in func(Place) Variants) {
	if _, none := variants(Place{}).(noVariants); !none {
		panic("bundles: there is a source of variants already")
	}
	variants = in
}

// VariantsIn returns the variants of a place. Without a paper that has variants, a function has one model.
func VariantsIn(p Place) Variants { return variants(p) }

// WholeModel returns the model that a deployment or the manifest of its bundle names, as the only one of a
// function.
func WholeModel(b *bundle.Bundle, f *provider.Function) (control.Model, error) {
	file, err := b.ModelFile(f.Inference.Model)
	return control.Model{Name: cluster.Whole, Of: b.Name, File: file, Images: f.Inference.Image}, err
}

// noVariants is the source of a program without variants.
type noVariants struct{}

// Models implements [Variants].
func (noVariants) Models(b *bundle.Bundle, f *provider.Function) ([]control.Model, error) {
	if f.Inference.Model == "" && len(b.Models) > 1 {
		return nil, &annotation.Error{Key: annotation.InferModel, Example: b.Models[0].Model,
			Why: fmt.Sprintf("the bundle has %d models, and this program was built without the paper that chooses between them; name the file of one", len(b.Models))}
	}
	whole, err := WholeModel(b, f)
	if err == nil && f.Inference.Model == "" && len(b.Models) == 1 {
		whole.Images = cmp.Or(b.Models[0].Image, whole.Images)
	}
	return []control.Model{whole}, err
}

// Wanted implements [Variants].
func (noVariants) Wanted(*provider.Function) bool { return false }

// Make implements [Variants].
func (noVariants) Make(context.Context, *provider.Function, func() (*bundle.Bundle, error)) error {
	return nil
}

// Used implements [Variants].
func (noVariants) Used(*bundle.Bundle) {}

// Tidy implements [Variants].
func (noVariants) Tidy(time.Time, []string, []cluster.Instance) ([]string, error) { return nil, nil }
