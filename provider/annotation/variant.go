package annotation

import (
	"slices"
	"strings"
)

// MaxVariants is the maximum number of variants of a function.
const MaxVariants = 64

// The values of InferVariants that are no names, and those of InferPrefer.
const (
	bundleVariants  = "bundle"
	autoVariants    = "auto"
	preferCost      = "cost"
	preferAccuracy  = "accuracy"
	exampleVariants = "resnet50,mobilenet"
)

// accuracy reads an accuracy in percent.
func accuracy(key, value string) (float64, error) {
	a, ok := decimal(value)
	if !ok || a < 0 || a > 100 {
		return 0, &Error{Key: key, Value: value, Why: "it must be a number of percent from 0 to 100", Example: "70"}
	}
	return a, nil
}

// variants reads which variants of a model may serve.
func variants(key, value string) (named string, made bool, err error) {
	switch value {
	case bundleVariants:
		return "", false, nil
	case autoVariants:
		return "", true, nil
	}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !IsName(name):
			return "", false, &Error{Key: key, Value: value, Why: "it must be bundle, auto, or names of variants, separated by commas", Example: exampleVariants}
		case slices.Contains(names, name):
			return "", false, &Error{Key: key, Value: value, Why: "it must name each variant once", Example: exampleVariants}
		}
		names = append(names, name)
	}
	if len(names) > MaxVariants {
		return "", false, &Error{Key: key, Value: value, Why: "a function has at most 64 variants", Example: autoVariants}
	}
	return strings.Join(names, ","), true, nil
}

// preference reads whether accuracy comes before cost.
func preference(key, value string) (accuracy bool, err error) {
	if value != preferCost && value != preferAccuracy {
		return false, &Error{Key: key, Value: value, Why: "it must be cost or accuracy", Example: preferAccuracy}
	}
	return value == preferAccuracy, nil
}

// Admits reports whether a variant may serve. made says that it was made of one that the
// bundle lists.
func (in *Inference) Admits(name string, made bool) bool {
	if in.Variants == "" {
		return in.MadeVariants || !made
	}
	return slices.Contains(strings.Split(in.Variants, ","), name)
}
