package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/variant"
)

// Model is a model that a function's instances may load: its only one, or a variant.
type Model struct {
	// Name is the variant's name, cluster.Whole if the function has one model only. Of is the
	// name of the bundle's model of which it is a variant: the same, unless it was generated.
	Name, Of string
	// File is the path of the model on this machine.
	File string
	// Images says how the model expects images, "" if it takes none.
	Images string
	// Accuracy is in percent, 0 if it is not known.
	Accuracy float64
	// From is the name of the model that Plan cuts, Plan says how, and Profile has the predicted
	// times of the instances that run it together; "" and nil if the model is not cut.
	From    string
	Plan    *cut.Plan
	Profile *profiler.Profile
}

// ModelsOf lists the models that a function's deployment admits: the file that it names, or those
// of the bundle's manifest, and registered variants of these that were generated. Generated ones
// serve only if the deployment names them or says auto. The deployment's form of images holds for
// a model for which the manifest has none.
func ModelsOf(b *bundle.Bundle, f *provider.Function, where Registrations) ([]Model, error) {
	in := &f.Inference
	file, err := b.ModelFile(in.Model)
	if err != nil {
		return nil, err
	}
	whole := []Model{{Name: cluster.Whole, Of: b.Name, File: file, Images: in.Image}}
	if in.Model != "" || b.Whole() {
		return whole, nil
	}
	found, bad := where.find(b)
	if len(b.Models) == 0 && in.Variants == "" && !in.Auto {
		whole[0].Accuracy = found.accuracy(b.Registered()[0])
		return whole, nil
	}
	var all, generated []Model
	for _, m := range b.Registered() {
		one := Model{Name: m.Name, Of: m.Name, Images: cmp.Or(m.Image, in.Image), Accuracy: found.accuracy(m)}
		if one.File, err = b.File(m.Model); err != nil {
			return nil, err
		}
		all = append(all, one)
		if in.Variants != "" || in.Auto {
			generated = append(generated, found.generated(one)...)
		}
	}
	all = append(all, generated...)
	if in.Auto && bad != nil && !where.Remade {
		return nil, bad
	}
	if err := checkNames(all, in.Variants, bad); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m Model) bool { return !in.Admits(m.Name) })
	return all[:min(len(all), variant.MaxOffers)], nil
}

// checkNames refuses names of variants that are not there. bad is what is wrong with the
// registration, nil if nothing is.
func checkNames(all []Model, named string, bad error) error {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	for name := range strings.SplitSeq(named, ",") {
		if name == "" || slices.Contains(names, name) {
			continue
		}
		why := "the bundle has no such model or variant; it has " + strings.Join(names, ", ")
		if bad != nil {
			why = "the registered variants cannot be used: " + bad.Error()
		}
		return &annotation.Error{Key: annotation.InferVariants, Value: name, Why: why}
	}
	return nil
}

// named adds a variant's name to an error about its model.
func named(variant string, err error) error {
	if variant == cluster.Whole {
		return err
	}
	return fmt.Errorf("model %s: %w", variant, err)
}
