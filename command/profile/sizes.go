package profile

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/spf13/pflag"
)

// ShapesFlag adds --shapes, the sizes of a model's free dimensions.
func ShapesFlag(flags *pflag.FlagSet, to *tensor.Shapes) {
	flags.Var(shapesValue{to}, "shapes", "sizes of the model's free dimensions, as in com.openfaas.infer.shapes: whole shapes by input, such as ids:1x128,mask:1x128 (default: found, or assumed)")
}

// MaxShapesFlag adds --max-shapes, the largest sizes of a model's free dimensions.
func MaxShapesFlag(flags *pflag.FlagSet, to *tensor.Shapes) {
	flags.Var(shapesValue{to}, "max-shapes", "largest sizes that a request may have, as in com.openfaas.infer.shapes.max (default: any)")
}

// maxLengthFlag adds --max-length, the maximum number of tokens of a text.
func maxLengthFlag(flags *pflag.FlagSet, to *int) {
	flags.IntVar(to, "max-length", 0, "find times for texts of up to so many tokens, as in a bundle's text.max_length (0: the usual lengths)")
}

// TryFlags are the flags with which the provider has a model tried.
type TryFlags struct {
	// ImageForm is the form of images whose size the only image of the model has, for
	// model.ParseImageForm; "" for no form. Shapes that are given go before it.
	ImageForm string
	// MaxRun is the maximum processor time of one run with one row, 0 for none.
	MaxRun time.Duration
}

// Flags adds the flags. They are hidden: users state annotations.
func (t *TryFlags) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&t.ImageForm, "image-form", "", "the form of images, as in com.openfaas.infer.image: the model's image has its size")
	flags.DurationVar(&t.MaxRun, "max-run", 0, "refuse a model of which one run with one row takes more processor time than this (0: none)")
	for _, name := range []string{"image-form", "max-run"} {
		_ = flags.MarkHidden(name) // The flag is defined above.
	}
}

// Shapes returns the given shapes if there are any, otherwise those that images of the form give
// the model in a file. Of such a file it reads all but the weights.
func (t *TryFlags) Shapes(file string, given tensor.Shapes) (tensor.Shapes, error) {
	if given != nil || t.ImageForm == "" {
		return given, nil
	}
	form, err := model.ParseImageForm(t.ImageForm)
	if err != nil {
		return nil, fmt.Errorf("--image-form: %w", err)
	}
	m, err := model.ReadOutline(file)
	if err != nil {
		return nil, err
	}
	return m.ImageShapes(form), nil
}

// shapesValue is a flag of shapes.
type shapesValue struct{ to *tensor.Shapes }

// String implements pflag's Value.
func (v shapesValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

// Set implements pflag's Value.
func (v shapesValue) Set(text string) (err error) {
	*v.to, err = tensor.ParseShapes(text)
	return err
}

// Type implements pflag's Value.
func (v shapesValue) Type() string { return "shapes" }
