package annotation

import (
	"slices"
	"strings"
)

// MaxVariants is the maximum number of variants of a function.
const MaxVariants = 64

// bundleVariants is the value of InferVariants for all variants of the bundle, autoVariants
// for generated ones, too.
const bundleVariants, autoVariants = "bundle", "auto"

// accuracy reads an accuracy in percent.
func accuracy(key, value string) (float64, error) {
	a, ok := ParseDecimal(value)
	if !ok || a < 0 || a > 100 {
		return 0, &Error{Key: key, Value: value, Why: "it must be a number of percent from 0 to 100", Example: "70"}
	}
	return a, nil
}

// variants reads which variants of a model may serve.
func variants(key, value string) (named string, err error) {
	if value == bundleVariants || value == autoVariants {
		return "", nil
	}
	refuse := func(why string) (string, error) {
		return "", &Error{Key: key, Value: value, Why: why, Example: "resnet50,mobilenet"}
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !IsName(name):
			return refuse("it must be bundle, auto, or names of variants, separated by commas")
		case slices.Contains(names, name):
			return refuse("it must name each variant once")
		}
		names = append(names, name)
	}
	if len(names) > MaxVariants {
		return refuse("a function has at most 64 variants")
	}
	return strings.Join(names, ","), nil
}

// prefer reads whether the function prefers accuracy to cost.
func prefer(key, value string) (accurate bool, err error) {
	if value != "cost" && value != "accuracy" {
		return false, &Error{Key: key, Value: value, Why: "it must be cost or accuracy", Example: "accuracy"}
	}
	return value == "accuracy", nil
}

// device reads on what the model may run.
func device(key, value string) (string, error) {
	switch value {
	case "auto":
		return "", nil
	case DeviceCPU, DeviceCUDA:
		return value, nil
	}
	return "", &Error{Key: key, Value: value, Why: "it must be auto, cpu or cuda", Example: "auto"}
}

// Admits reports whether a variant may serve.
func (in *Inference) Admits(name string) bool {
	return in.Variants == "" || slices.Contains(strings.Split(in.Variants, ","), name)
}
