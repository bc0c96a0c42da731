package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// The words of InferMaxLength beside a number: what becomes of longer texts.
const (
	refuseLong   = "refuse"
	truncateLong = "truncate"
)

// maxLength reads the maximum number of tokens of a text, 0 for that of the bundle, and whether longer ones are refused.
func maxLength(key, value string) (tokens int, refuse bool, err error) {
	number, word, both := strings.Cut(value, ",")
	if word = strings.TrimSpace(word); !both && (value == refuseLong || value == truncateLong) {
		number, word = "", value
	}
	if number = strings.TrimSpace(number); number != "" {
		tokens, err = strconv.Atoi(number)
	}
	known := word == refuseLong || word == truncateLong || word == "" && !both
	if err != nil || !known || tokens < 1 && number != "" || tokens > bundle.MaxTextLength || number == "" && (both || word == "") {
		return 0, false, &Error{Key: key, Value: value, Example: "256,refuse", Why: fmt.Sprintf(
			"it must be a number of tokens from 1 to %d, %s, or both with a comma between; texts are cut unless it says %[2]s",
			bundle.MaxTextLength, refuseLong)}
	}
	return tokens, word == refuseLong, nil
}

// WrongMaxLength says why a model cannot have the length of InferMaxLength. why is the end of a sentence.
func (in *Inference) WrongMaxLength(why string) *Error {
	value := strconv.Itoa(in.MaxLength)
	switch {
	case in.MaxLength == 0:
		value = refuseLong
	case in.RefuseLong:
		value += "," + refuseLong
	}
	return &Error{Key: InferMaxLength, Value: value, Why: why}
}

// shapes reads whole shapes by input. It returns them as [tensor.Shapes.String] writes them.
func shapes(key, value string) (string, error) {
	s, err := tensor.ParseShapes(value)
	switch {
	case err != nil:
		return "", &Error{Key: key, Value: value, Why: err.Error(), Example: "ids:1x128,mask:1x128"}
	case s == nil:
		return "", &Error{Key: key, Value: value, Why: "it must give inputs whole shapes, the batch included; leave the key out otherwise", Example: "ids:1x128,mask:1x128"}
	}
	return s.String(), nil
}

// WrongShapes says why a model cannot have the sizes of InferShapes, "" for an absent key. why is
// the end of a sentence.
func WrongShapes(value, why string) *Error {
	return &Error{Key: InferShapes, Value: value, Why: why, Example: "ids:1x128,mask:1x128"}
}

// WrongMaxShapes is WrongShapes for InferMaxShapes.
func WrongMaxShapes(value, why string) *Error {
	return &Error{Key: InferMaxShapes, Value: value, Why: why, Example: "ids:1x512,mask:1x512"}
}

// checkShapes refuses usual sizes that are above the largest ones.
func (in *Inference) checkShapes() error {
	usual, err := tensor.ParseShapes(in.Shapes)
	if err != nil {
		return err
	}
	most, err := tensor.ParseShapes(in.MaxShapes)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		given, largest := usual[name], most[name]
		if given == nil {
			continue
		}
		if len(given) != len(largest) {
			return &Error{Key: InferMaxShapes, Value: in.MaxShapes,
				Why: fmt.Sprintf("the input %q has %d dimensions there and %d in %s; give it as many", name, len(largest), len(given), InferShapes)}
		}
		for i := 1; i < len(given); i++ {
			if given[i] > largest[i] {
				return &Error{Key: InferMaxShapes, Value: in.MaxShapes,
					Why: fmt.Sprintf("dimension %d of the input %q must be at least %d, its size in %s", i, name, given[i], InferShapes)}
			}
		}
	}
	return nil
}
