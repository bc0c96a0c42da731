package infaas

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// The annotations of INFaaS, beside [annotation.SLOAccuracy].
const (
	// VariantsKey says which variants of the model may serve: "bundle", the default, for all that the
	// bundle's manifest lists; "auto" for these and the int8 variants that the provider generates; or
	// some names of either, separated by commas.
	VariantsKey = "com.openfaas.infer.variants"
	// PreferKey is "cost", the default, or "accuracy": which of the variants that are accurate and fast
	// enough serve if there is room for all.
	PreferKey = "com.openfaas.infer.prefer"
)

// keys are the annotations with their checks. The engine and the classes of requests read the accuracy
// and the preference, so these are fields of the core. Only the room reads which variants may serve.
var keys = []annotation.Key{
	{Name: annotation.SLOAccuracy, Set: func(in *annotation.Inference, value string) (err error) {
		in.Accuracy, err = accuracy(annotation.SLOAccuracy, value)
		return err
	}},
	{Name: PreferKey, Set: func(in *annotation.Inference, value string) (err error) {
		in.Accurate, err = prefer(PreferKey, value)
		return err
	}},
	{Name: VariantsKey, Set: func(in *annotation.Inference, value string) error {
		named, err := variants(VariantsKey, value)
		in.Stated = in.Stated.With(VariantsKey, named)
		return err
	}},
}

// maxVariants is the maximum number of variants of a function.
const maxVariants = 64

// bundleVariants is the value of VariantsKey for all variants of the bundle, autoVariants for generated
// ones, too.
const bundleVariants, autoVariants = "bundle", "auto"

// accuracy reads an accuracy in percent.
func accuracy(key, value string) (float64, error) {
	a, ok := annotation.ParseDecimal(value)
	if !ok || a < 0 || a > 100 {
		return 0, &annotation.Error{Key: key, Value: value, Why: "it must be a number of percent from 0 to 100", Example: "70"}
	}
	return a, nil
}

// variants reads which variants of a model may serve. It returns "" for those of the bundle.
func variants(key, value string) (named string, err error) {
	switch value {
	case bundleVariants:
		return "", nil
	case autoVariants:
		return autoVariants, nil
	}
	refuse := func(why string) (string, error) {
		return "", &annotation.Error{Key: key, Value: value, Why: why, Example: "resnet50,mobilenet"}
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !annotation.IsName(name):
			return refuse("it must be bundle, auto, or names of variants, separated by commas")
		case slices.Contains(names, name):
			return refuse("it must name each variant once")
		}
		names = append(names, name)
	}
	if len(names) > maxVariants {
		return refuse("a function has at most 64 variants")
	}
	return strings.Join(names, ","), nil
}

// prefer reads whether the function prefers accuracy to cost.
func prefer(key, value string) (accurate bool, err error) {
	if value != "cost" && value != "accuracy" {
		return false, &annotation.Error{Key: key, Value: value, Why: "it must be cost or accuracy", Example: "accuracy"}
	}
	return value == "accuracy", nil
}

// isAuto reports whether a deployment asks for generated variants.
func isAuto(f *provider.Function) bool { return f.Inference.Stated.Value(VariantsKey) == autoVariants }

// named lists the variants that a deployment names, none if all of the bundle may serve.
func named(f *provider.Function) []string {
	value := f.Inference.Stated.Value(VariantsKey)
	if value == "" || value == autoVariants {
		return nil
	}
	return strings.Split(value, ",")
}
