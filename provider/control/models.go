package control

import (
	"cmp"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Model is a model that a function's instances may load: its only one, or a variant.
type Model struct {
	// Name is the variant's name, cluster.Whole if the function has one model only.
	Name string
	// File is the path of the model on this machine.
	File string
	// Images says how the model expects images, "" if it takes none.
	Images string
	// Accuracy is in percent, 0 if it is not known.
	Accuracy float64
}

// ModelsOf lists the bundle's models that a function's deployment admits: the file that it
// names, or those of the manifest. What the deployment says of images holds for a model of
// which the manifest says nothing.
func ModelsOf(b *bundle.Bundle, f *provider.Function) ([]Model, error) {
	in := &f.Inference
	file, err := b.ModelFile(in.Model)
	if err != nil {
		return nil, err
	}
	if in.Model != "" || len(b.Models) == 0 {
		return []Model{{Name: cluster.Whole, File: file, Images: in.Image}}, nil
	}
	var models []Model
	for _, m := range b.Registered() {
		if !in.Admits(m.Name) {
			continue
		}
		one := Model{Name: m.Name, Images: cmp.Or(m.Image, in.Image)}
		if m.Accuracy != nil {
			one.Accuracy = *m.Accuracy
		}
		if one.File, err = b.File(m.Model); err != nil {
			return nil, err
		}
		models = append(models, one)
	}
	return models, checkNames(b, in.Variants)
}

// checkNames refuses names of variants that the bundle does not list.
func checkNames(b *bundle.Bundle, named string) error {
	var all []string
	for _, m := range b.Registered() {
		all = append(all, m.Name)
	}
	for name := range strings.SplitSeq(named, ",") {
		if name != "" && !slices.Contains(all, name) {
			return &annotation.Error{Key: annotation.InferVariants, Value: name, Why: "the bundle has no such model; it has " + strings.Join(all, ", ")}
		}
	}
	return nil
}
