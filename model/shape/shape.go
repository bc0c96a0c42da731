// Package shape infers, for one ONNX operator at a time, the shapes of what it
// computes from the shapes of what it is given, and counts its arithmetic. It
// also follows the contents of small integer tensors, because exporters compute
// the shapes of Reshape, Expand and Slice by operators (Shape → Gather → Concat
// → Reshape).
//
// An unknown value stays unknown; a contradiction is an error.
package shape

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Unknown is an element of [Value.Ints] that is not known.
const Unknown = math.MinInt64

// maxInts is the most elements of a tensor whose contents are followed.
const maxInts = 4096

// maxRank is the most dimensions of a tensor; engines take fewer.
const maxRank = 64

// Value is what is known of one tensor.
type Value struct {
	Elem onnxpb.TensorProto_DataType
	// Shape is nil if not even the rank is known; a dimension that is not
	// known is -1. A scalar's is empty, not nil.
	Shape []int64
	// Ints are the contents of a small integer or boolean tensor, row by
	// row; nil if unknown.
	Ints []int64
	// Constant is the tensor in the model, if the value is one.
	Constant *onnxpb.TensorProto
}

// Elements is the product of the shape, saturating; -1 if it is not known.
func (v Value) Elements() int64 { return product(v.Shape) }

// Infer returns what is known of a node's outputs. An input that the node
// leaves out is the zero Value. ok is false for an operator that this package
// does not know; its outputs are then unknown. The error of a node that cannot
// be executed on such inputs says what does not fit.
func Infer(node *onnxpb.NodeProto, opset int64, inputs []Value) (outputs []Value, ok bool, err error) {
	outputs = make([]Value, len(node.GetOutput()))
	r, ok := ruleOf(node)
	if !ok {
		return outputs, false, nil
	}
	c := newCall(node, opset, inputs)
	inferred, err := r.infer(c)
	if err != nil {
		return outputs, true, err
	}
	copy(outputs, inferred)
	for i := range outputs {
		if outputs[i], err = settle(outputs[i]); err != nil {
			return make([]Value, len(outputs)), true, err
		}
	}
	return outputs, true, nil
}

// settle holds a value to what the rules rely on: no negative dimension but -1,
// which an overflow could have made, a bounded rank, and as many contents as
// the shape says.
func settle(v Value) (Value, error) {
	if len(v.Shape) > maxRank {
		return v, fmt.Errorf("it gives a tensor of %d dimensions, more than %d", len(v.Shape), maxRank)
	}
	if slices.ContainsFunc(v.Shape, func(d int64) bool { return d < -1 }) {
		v.Shape = known(v.Shape)
	}
	if v.Elements() != int64(len(v.Ints)) {
		v.Ints = nil
	}
	return v, nil
}

// Cost is the number of multiply-adds, comparisons and other arithmetic of a
// node: a multiply-add counts once, an element-wise or normalising operator
// once per output element, a pooling or reducing one once per element read, and
// moving data is free. It is -1 if it is not known.
func Cost(node *onnxpb.NodeProto, inputs, outputs []Value) int64 {
	r, ok := ruleOf(node)
	if !ok || len(outputs) == 0 {
		return -1
	}
	return r.cost(newCall(node, 0, inputs), outputs)
}

func ruleOf(node *onnxpb.NodeProto) (rule, bool) {
	r, ok := domains[node.GetDomain()][node.GetOpType()]
	return r, ok
}

// rule is what the package knows of one kind of operator.
type rule struct {
	infer func(*call) ([]Value, error)
	cost  func(c *call, outputs []Value) int64
}

// call is one node with its inputs.
type call struct {
	node       *onnxpb.NodeProto
	opset      int64
	inputs     []Value
	attributes map[string]*onnxpb.AttributeProto
}

func newCall(node *onnxpb.NodeProto, opset int64, inputs []Value) *call {
	c := &call{node: node, opset: opset, inputs: inputs, attributes: make(map[string]*onnxpb.AttributeProto)}
	for _, a := range node.GetAttribute() {
		c.attributes[a.GetName()] = a
	}
	return c
}

// in is input i; the zero Value if the node has fewer.
func (c *call) in(i int) Value {
	if i < len(c.inputs) {
		return c.inputs[i]
	}
	return Value{}
}

// given reports whether the node has an input i.
func (c *call) given(i int) bool {
	return i < len(c.node.GetInput()) && c.node.GetInput()[i] != ""
}

func (c *call) int(name string, otherwise int64) int64 {
	if a, ok := c.attributes[name]; ok {
		return a.GetI()
	}
	return otherwise
}

func (c *call) string(name string) string { return string(c.attributes[name].GetS()) }

func (c *call) ints(name string) []int64 { return c.attributes[name].GetInts() }

// intsOr are integers that older opsets give as an attribute and newer ones as
// input i. known is false if they are given but their contents are not known.
func (c *call) intsOr(name string, i int) (values []int64, known bool) {
	if a, ok := c.attributes[name]; ok {
		return a.GetInts(), true
	}
	if !c.given(i) {
		return nil, true
	}
	for _, v := range c.in(i).Ints {
		if v == Unknown {
			return nil, false
		}
	}
	return c.in(i).Ints, c.in(i).Ints != nil
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

// axes is axis for a set; none given means all.
func axes(as []int64, rank int) (map[int]bool, error) {
	set := make(map[int]bool)
	for _, a := range as {
		i, err := axis(a, rank)
		if err != nil {
			return nil, err
		}
		set[i] = true
	}
	for i := 0; len(as) == 0 && i < rank; i++ {
		set[i] = true
	}
	return set, nil
}

// of is a value of the same element type as v.
func (v Value) of(shape []int64) Value { return Value{Elem: v.Elem, Shape: shape} }

// product is -1 for an unknown shape, and stops at the largest int64.
func product(shape []int64) int64 {
	if shape == nil {
		return -1
	}
	n := int64(1)
	for _, d := range shape {
		if d == 0 {
			return 0
		}
		n = times(n, d)
	}
	return n
}

// times multiplies counts: unknown (negative) if either is, saturating.
func times(a, b int64) int64 {
	switch {
	case a < 0 || b < 0:
		return -1
	case b != 0 && a > math.MaxInt64/b:
		return math.MaxInt64
	}
	return a * b
}

// unknown is a shape of known rank of which nothing else is known.
func unknown(rank int) []int64 {
	shape := make([]int64, rank)
	for i := range shape {
		shape[i] = -1
	}
	return shape
}
