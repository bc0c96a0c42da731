// Package operator splits models into distinct operators. An operator is a node's type
// with its attributes and the shapes of its inputs, as functions of the batch size.
// INFless §3.3 profiles models by such operators, ⟨p, b, c, g⟩ → t, because models
// share them: its eleven models call more than a thousand and have 71 distinct ones.
// The package measures nothing and does no I/O.
//
// Begin with [Read], which returns a model's distinct operators and the nodes that
// call them. [Operator.Model] makes a model of one operator alone, and
// [Operator.Samples] makes inputs like those that it gets in a model.
package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Dim is a dimension, or another whole number, that grows with the batch.
type Dim struct{ Fixed, PerRow int64 }

// At is the number at a batch size.
func (d Dim) At(batch int) int64 { return d.Fixed + d.PerRow*int64(batch) }

// String is "64", "b", "16b" or "16b+1".
func (d Dim) String() string {
	if d.PerRow == 0 {
		return strconv.FormatInt(d.Fixed, 10)
	}
	text := "b"
	switch d.PerRow {
	case 1:
	case -1:
		text = "-b"
	default:
		text = strconv.FormatInt(d.PerRow, 10) + "b"
	}
	if d.Fixed != 0 {
		text += fmt.Sprintf("%+d", d.Fixed)
	}
	return text
}

// Role is the role of an operand.
type Role uint8

const (
	// Activation is computed while the model runs, or sent by its caller.
	Activation Role = iota
	// Weight is a constant whose values do not affect the operator's time.
	Weight
	// Contents are numbers that affect the time: shapes, axes, indices, bounds.
	Contents
	// Absent is an operand that the node leaves out.
	Absent
)

// String is the role's name in lower case.
func (r Role) String() string {
	return [...]string{"activation", "weight", "contents", "absent"}[min(r, Absent)]
}

// Operand is one input or output of an operator.
type Operand struct {
	// Type is "" for elements that no request can carry (strings, bfloat16).
	Type  tensor.Type
	Shape []Dim
	Role  Role
	// Contents are the elements, row by row, of an operand with that role. It is
	// nil if Constant holds them.
	Contents []Dim
	// Constant is a constant of few elements with its values, nil otherwise. It
	// must not be changed.
	Constant *onnxpb.TensorProto
	// Lookup is an upper bound of elements that are row numbers of a table, or
	// lengths: they are below it. 0 is no bound.
	Lookup int64
	// Same is 1 + the index of an earlier input that is the same tensor, 0 if
	// there is none.
	Same int
}

// Elements is the number of elements at a batch size.
func (o Operand) Elements(batch int) int64 {
	n := int64(1)
	for _, d := range o.Shape {
		n *= d.At(batch)
	}
	return n
}

// Bytes is the operand's size at a batch size, 0 if it is absent.
func (o Operand) Bytes(batch int) int64 {
	if o.Role == Absent {
		return 0
	}
	return o.Elements(batch) * int64(o.Type.Size())
}

// At is the operand's shape at a batch size.
func (o Operand) At(batch int) []int64 {
	shape := make([]int64, len(o.Shape))
	for i, d := range o.Shape {
		shape[i] = d.At(batch)
	}
	return shape
}

// grows reports whether the operand's contents depend on the batch.
func (o Operand) grows() bool {
	return slices.ContainsFunc(o.Contents, func(d Dim) bool { return d.PerRow != 0 })
}

// sent reports whether the operand is an input of its operator's model.
func (o Operand) sent() bool {
	return o.Role == Activation && len(o.Shape) > 0 || o.Role == Contents && o.grows()
}

// Operator is one distinct operator of a model. Nodes of any name may call it. It must
// not be changed.
type Operator struct {
	// Type is the ONNX operator. An operator of another domain has the domain
	// before it, as in [model.Operator]: "com.microsoft.FusedConv".
	Type string
	// Domain is "" for the standard operators. Opset is the domain's version in the
	// model.
	Domain string
	Opset  int64
	// Attributes are those of the model's node.
	Attributes      []*onnxpb.AttributeProto
	Inputs, Outputs []Operand
	// View is true if the engine only gives the input another shape and copies
	// nothing. ONNX Runtime does so for a Reshape whose output is not the model's.
	View bool
	// Unknown is true if its cost is unknown.
	Unknown bool
	// FLOPs are the coefficients of 1, b and b² in the number of
	// multiply-adds, counted as [model.Operator] does.
	FLOPs [3]float64

	key, family string
}

// Key is the operator as a text, for people and for the database. Operators that take
// the same time have equal keys: names do not matter, and an attribute with its default
// equals one that is left out.
func (o *Operator) Key() string {
	if o.key == "" {
		return o.describe()
	}
	return o.key
}

// attribute is the attribute of that name, nil if the operator has none.
func (o *Operator) attribute(name string) *onnxpb.AttributeProto {
	for _, a := range o.Attributes {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// int is an attribute's number, otherwise if the operator does not have it.
func (o *Operator) int(name string, otherwise int64) int64 {
	if a := o.attribute(name); a != nil {
		return a.GetI()
	}
	return otherwise
}

// input is input i, the absent operand if the operator has fewer inputs.
func (o *Operator) input(i int) Operand {
	if i < len(o.Inputs) {
		return o.Inputs[i]
	}
	return Operand{Role: Absent}
}

// name is the type without its domain.
func (o *Operator) name() string {
	if o.Domain == "" {
		return o.Type
	}
	return strings.TrimPrefix(o.Type, o.Domain+".")
}
