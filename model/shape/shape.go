// Package shape infers the output shapes of one ONNX operator from its input
// shapes, and counts the operator's arithmetic. It also follows the contents of
// small integer tensors, because exporters compute the shapes of Reshape, Expand
// and Slice by operators (Shape → Gather → Concat → Reshape). It does not walk a
// graph; package model does.
//
// An unknown value stays unknown; a contradiction is an error. Begin with [Infer]
// and the table of rules in rules.go.
package shape

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Unknown stands for an unknown element in [Value.Ints].
const Unknown = math.MinInt64

// maxInts is the maximum number of elements of a tensor whose contents are
// followed.
const maxInts = 4096

// maxRank is the maximum number of dimensions of a tensor. Engines take fewer.
const maxRank = 64

// Value holds the known facts of one tensor.
type Value struct {
	Elem onnxpb.TensorProto_DataType
	// Shape is nil if the rank is unknown. An unknown dimension is -1. The shape
	// of a scalar is empty, not nil.
	Shape []int64
	// Ints are the contents of a small integer or boolean tensor, row by
	// row; nil if unknown.
	Ints []int64
	// Constant is the tensor in the model if the value is a constant.
	Constant *onnxpb.TensorProto
}

// Elements is the product of the shape, at most the largest int64; -1 if unknown.
func (v Value) Elements() int64 { return product(v.Shape) }

// Infer infers a node's outputs. An input that the node leaves out is the zero
// Value. For an operator that this package does not know, ok is false and the
// outputs are unknown. If the node cannot run on these inputs, the error says why.
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

// settle makes a value fit for the other rules. It refuses a rank above maxRank.
// A dimension below -1, which an overflow can produce, becomes -1. Contents that
// are not as many as the shape's elements are dropped.
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

// Cost is the number of arithmetic operations of a node, -1 if unknown. A
// multiply-add counts once. An element-wise or normalising operator counts once
// per output element, a pooling or reducing operator once per element that it
// reads. Moving data is free.
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

// rule infers the outputs and the cost of one kind of operator.
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

// in is input i, the zero Value if the node has fewer inputs.
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

// intsOr reads integers that older opsets give as an attribute and newer opsets
// as input i. known is false if the node has that input but its contents are
// unknown.
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

// axis turns an axis that may count from the end into an index from 0.
func axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d is not one of its %d dimensions", a, rank)
	}
	return int(a), nil
}

// axes is axis for several axes. No axes mean all.
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

// of is a value with v's element type and another shape.
func (v Value) of(shape []int64) Value { return Value{Elem: v.Elem, Shape: shape} }

// product is the number of elements of a shape, at most the largest int64; -1 if
// unknown.
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

// times multiplies two counts, up to the largest int64. The product is -1
// (unknown) if either count is negative.
func times(a, b int64) int64 {
	switch {
	case a < 0 || b < 0:
		return -1
	case b != 0 && a > math.MaxInt64/b:
		return math.MaxInt64
	}
	return a * b
}

// unknown is a shape of known rank whose dimensions are all unknown.
func unknown(rank int) []int64 {
	shape := make([]int64, rank)
	for i := range shape {
		shape[i] = -1
	}
	return shape
}
