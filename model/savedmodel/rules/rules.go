// Package rules infers, for one TensorFlow operator at a time, the shapes of what
// it computes from what it is given, and counts its arithmetic as the package
// shape does for ONNX. An operator that ONNX has, too, is inferred as that one;
// the others have rules of their own here.
//
// What cannot be known stays unknown; what contradicts itself is an error.
package rules

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

const (
	// maxRank is the most dimensions of a tensor, maxInts the most elements of
	// one whose contents are followed, maxOutputs the most outputs of a node.
	maxRank    = 64
	maxInts    = 4096
	maxOutputs = 1 << 12
)

// Value is what is known of a tensor, or of what a resource or a variant stands
// for: a variable has its variable's type and shape.
type Value struct {
	shape.Value
	// List is set for a list of tensors.
	List *List
}

// List is what is known of a list of tensors.
type List struct {
	// Element is the shape of every tensor in it, Length how many there are, -1
	// if that is not known.
	Element []int64
	Length  int64
}

// Call is one node with its inputs.
type Call struct {
	Op         string
	Attributes map[string]*pb.AttrValue
	Inputs     []Value
	// Types are those of the outputs, where the file tells them.
	Types []pb.DataType
}

// rule is what the package knows of one kind of operator.
type rule struct {
	infer func(*Call) ([]Value, error)
	cost  func(*Call, []Value) int64
}

// Infer returns what is known of the outputs, of as many as it can say anything
// about. known is false for an operator that this package does not know: of its
// outputs only what the file itself says is known. The error of a node that
// cannot be executed on such inputs says what does not fit.
func (c *Call) Infer() (outputs []Value, known bool, err error) {
	r, known := rules[c.Op]
	if known {
		if outputs, err = r.infer(c); err != nil {
			return nil, true, err
		}
	}
	for len(outputs) < len(c.Types) {
		outputs = append(outputs, Value{})
	}
	for i := range outputs {
		if err := settle(&outputs[i]); err != nil {
			return nil, known, err
		}
		if i < len(c.Types) && c.Types[i] != pb.DataType_DT_INVALID {
			outputs[i].Elem = Element(c.Types[i])
		}
	}
	c.declared(outputs)
	return outputs, known, nil
}

// declared fills in what the file says of shapes that could not be inferred.
func (c *Call) declared(outputs []Value) {
	list := c.Attributes["_output_shapes"].GetList().GetShape()
	for i, s := range list[:min(len(list), len(outputs))] {
		if outputs[i].List == nil {
			outputs[i].Shape = refine(outputs[i].Shape, Shape(s))
		}
	}
}

// Cost is the number of multiply-adds and other arithmetic, counted as
// [shape.Cost] does; -1 if it is not known.
func (c *Call) Cost(outputs []Value) int64 {
	r, ok := rules[c.Op]
	if !ok || len(outputs) == 0 {
		return -1
	}
	return r.cost(c, outputs)
}

// settle holds a value to what the rules rely on, see package shape.
func settle(v *Value) error {
	if len(v.Shape) > maxRank || v.List != nil && len(v.List.Element) > maxRank {
		return fmt.Errorf("it gives a tensor of more than %d dimensions", maxRank)
	}
	v.Shape = bounded(v.Shape)
	if product(v.Shape) != int64(len(v.Ints)) || len(v.Ints) > maxInts {
		v.Ints = nil
	}
	if whole := v.Elem == onnxpb.TensorProto_INT32 || v.Elem == onnxpb.TensorProto_INT64; whole && product(v.Shape) == 0 {
		v.Ints = []int64{} // What an empty tensor holds is known.
	}
	if v.List != nil {
		v.List = &List{bounded(v.List.Element), max(v.List.Length, -1)}
	}
	return nil
}

func bounded(dims []int64) []int64 {
	if !slices.ContainsFunc(dims, func(d int64) bool { return d < -1 }) {
		return dims
	}
	out := make([]int64, len(dims))
	for i, d := range dims {
		out[i] = max(d, -1)
	}
	return out
}

// Shape is a shape of the file: nil if its rank is not known.
func Shape(s *pb.TensorShapeProto) []int64 {
	if s == nil || s.GetUnknownRank() || len(s.GetDim()) > maxRank {
		return nil
	}
	out := []int64{}
	for _, d := range s.GetDim() {
		out = append(out, max(d.GetSize(), -1))
	}
	return out
}

// refine fills in the dimensions that are not known from another source. Where
// the two do not agree, the first holds.
func refine(dims, from []int64) []int64 {
	if dims == nil {
		return from
	}
	if len(from) != len(dims) || !slices.Contains(dims, -1) {
		return dims
	}
	out := slices.Clone(dims)
	for i, d := range out {
		if d < 0 {
			out[i] = from[i]
		}
	}
	return out
}

// in is input i; the zero Value if the node has fewer.
func (c *Call) in(i int) Value {
	if i >= 0 && i < len(c.Inputs) {
		return c.Inputs[i]
	}
	return Value{}
}

// ints are the contents of input i; nil if they are not all known.
func (c *Call) ints(i int) []int64 {
	v := c.in(i).Ints
	if slices.Contains(v, shape.Unknown) {
		return nil
	}
	return v
}

// scalar is the one number in input i.
func (c *Call) scalar(i int) (int64, bool) {
	v := c.ints(i)
	if len(v) != 1 {
		return 0, false
	}
	return v[0], true
}

func (c *Call) int(name string) int64    { return c.Attributes[name].GetI() }
func (c *Call) flag(name string) bool    { return c.Attributes[name].GetB() }
func (c *Call) text(name string) string  { return string(c.Attributes[name].GetS()) }
func (c *Call) list(name string) []int64 { return c.Attributes[name].GetList().GetI() }

// count is an attribute that says how many outputs there are.
func (c *Call) count(name string) int { return int(min(max(c.int(name), 0), maxOutputs)) }

// of is one value of the type of v.
func of(v Value, dims []int64) []Value {
	return []Value{{Value: shape.Value{Elem: v.Elem, Shape: dims}}}
}

// whole is one integer tensor with its contents.
func whole(dims, ints []int64) Value {
	return Value{Value: shape.Value{Elem: onnxpb.TensorProto_INT32, Shape: dims, Ints: ints}}
}

// axis makes an axis that may count from the end one that does not.
func axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d is not one of its %d dimensions", a, rank)
	}
	return int(a), nil
}

// unknown is a shape of known rank of which nothing else is known.
func unknown(rank int) []int64 {
	dims := make([]int64, min(rank, maxRank))
	for i := range dims {
		dims[i] = -1
	}
	return dims
}

// product is -1 for an unknown shape, and stops at the largest int64.
func product(dims []int64) int64 {
	if dims == nil {
		return -1
	}
	n := int64(1)
	for _, d := range dims {
		n = times(n, d)
	}
	return n
}

// times and plus reckon with counts: unknown (negative) if either is, saturating.
func times(a, b int64) int64 {
	switch {
	case a < 0 || b < 0:
		return -1
	case b != 0 && a > math.MaxInt64/b:
		return math.MaxInt64
	}
	return a * b
}

func plus(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + min(b, math.MaxInt64-a)
}
