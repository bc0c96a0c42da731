package infaas

import (
	"cmp"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/variant"
)

// modelsOf lists the models that a function's deployment admits: the file that it names, or those
// of the bundle's manifest, and registered variants of these that were generated. Generated ones
// serve only if the deployment names them or says auto. The deployment's form of images holds for
// a model for which the manifest has none.
func modelsOf(b *bundle.Bundle, f *provider.Function, where registrations) ([]control.Model, error) {
	in := &f.Inference
	whole, err := bundles.WholeModel(b, f)
	if err != nil {
		return nil, err
	}
	if in.Model != "" || b.Whole() {
		return []control.Model{whole}, nil
	}
	names, auto := named(f), isAuto(f)
	found, bad := where.find(b)
	if len(b.Models) == 0 && names == nil && !auto {
		whole.Accuracy = found.accuracy(b.Registered()[0])
		return []control.Model{whole}, nil
	}
	var all, generated []control.Model
	for _, m := range b.Registered() {
		one := control.Model{Name: m.Name, Of: m.Name, Images: cmp.Or(m.Image, in.Image), Accuracy: found.accuracy(m)}
		if one.File, err = b.File(m.Model); err != nil {
			return nil, err
		}
		all = append(all, one)
		if names != nil || auto {
			generated = append(generated, found.generated(one)...)
		}
	}
	all = append(all, generated...)
	if auto && bad != nil && !where.Remade {
		return nil, bad
	}
	if err := checkNames(all, names, bad); err != nil {
		return nil, err
	}
	if names != nil {
		all = slices.DeleteFunc(all, func(m control.Model) bool { return !slices.Contains(names, m.Name) })
	}
	return all[:min(len(all), variant.MaxOffers)], nil
}

// checkNames refuses names of variants that are not there. bad is what is wrong with the
// registration, nil if nothing is.
func checkNames(all []control.Model, wanted []string, bad error) error {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	for _, name := range wanted {
		if slices.Contains(names, name) {
			continue
		}
		why := "the bundle has no such model or variant; it has " + strings.Join(names, ", ")
		if bad != nil {
			why = "the registered variants cannot be used: " + bad.Error()
		}
		return &annotation.Error{Key: VariantsKey, Value: name, Why: why}
	}
	return nil
}
