package profile

import (
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
