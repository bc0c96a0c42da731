package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// MaxBatch is the largest batch size of a graph.
const MaxBatch = 1 << 20

// Value is one tensor in a graph. Its Name is unique.
type Value struct {
	Name string `json:"name"`
	// Type is "" if it is unknown or has no Open Inference name.
	Type tensor.Type `json:"datatype"`
	// Shape is nil if the rank is unknown. An unknown dimension is -1.
	Shape []int64 `json:"shape"`
	// Contents are the elements, row by row, of a small tensor of integers or
	// booleans, as far as shape inference could follow them. An element that it
	// could not follow is [shape.Unknown]. Contents is nil for any other tensor.
	// It must not be changed.
	Contents []int64 `json:"-"`
	// Constant is the tensor in the file if the value is an initialiser, the
	// output of a Constant operator, or a copy of either. It is nil for a value
	// that is computed or sent. It lacks its data if that is in another file or
	// generated later. It must not be changed.
	Constant *onnxpb.TensorProto `json:"-"`
}

// Operator is one node of a model at a batch size.
type Operator struct {
	Name string `json:"name"`
	// Type is the ONNX operator, as "Conv". An operator of another domain has
	// the domain before it, as "com.microsoft.Gelu".
	Type    string  `json:"type"`
	Inputs  []Value `json:"inputs"`
	Outputs []Value `json:"outputs"`
	// FLOPs counts a multiply-add once, as INFless Table 1 does for
	// ResNet-50 (3.89 GFLOPs). It counts an element-wise operator once per
	// output element, and moving data not at all. It is 0 if unknown.
	FLOPs int64 `json:"flops"`
	// Parameters is the number of elements in the weights that the operator
	// reads, ParameterBytes their size in bytes.
	Parameters     int64 `json:"parameters"`
	ParameterBytes int64 `json:"parameterBytes"`
	// Node is the operator in the file, with its attributes. It must not be
	// changed.
	Node *onnxpb.NodeProto `json:"-"`
}

// Graph is a model's operators at one batch size, in an executable order.
type Graph struct {
	Batch     int        `json:"batch"`
	Inputs    []Value    `json:"inputs"`
	Outputs   []Value    `json:"outputs"`
	Operators []Operator `json:"operators"`
	// FLOPs is the sum over the operators.
	FLOPs int64 `json:"flops"`
	// Parameters and ParameterBytes count each weight once, even if several
	// operators read it.
	Parameters     int64 `json:"parameters"`
	ParameterBytes int64 `json:"parameterBytes"`
	// Unknown names the operators whose FLOPs or output shapes are not fully
	// known. Their type is unknown to this package, or they depend on such an
	// operator or on a dynamic dimension other than the batch.
	Unknown []string `json:"unknown"`
	// ControlFlow names the operators with subgraphs, such as If, Loop and Scan.
	// Their cost depends on the data, so Unknown lists them too. Operators in
	// subgraphs are not counted.
	ControlFlow []string `json:"controlFlow,omitempty"`
}

// Graph infers the operator graph at a batch size. A model with an input without a dynamic
// leading dimension has only a graph of batch 1, of one request with the declared shapes; for
// other sizes the error wraps [ErrNoBatch] and names the input. An operator
// that cannot take its inputs at that batch size is an error too, for example a
// Reshape that was exported with a batch of 1.
func (m *Model) Graph(batch int) (*Graph, error) {
	if batch < 1 || batch > MaxBatch {
		return nil, fmt.Errorf("a batch of %d: it must be from 1 to %d", batch, MaxBatch)
	}
	if err := m.checkBatch(); err != nil && batch > 1 {
		return nil, err
	}
	w := newWalk(m, batch)
	for i, node := range m.proto.GetGraph().GetNode() {
		if err := w.add(i, node); err != nil {
			return nil, err
		}
	}
	for _, o := range m.proto.GetGraph().GetOutput() {
		v, ok := w.values[o.GetName()]
		if !ok {
			return nil, fmt.Errorf("nothing computes output %q; the model is damaged", o.GetName())
		}
		w.graph.Outputs = append(w.graph.Outputs, public(o.GetName(), v))
	}
	return w.graph, nil
}

// walk goes through a model's nodes once.
type walk struct {
	graph   *Graph
	opset   int64
	values  map[string]shape.Value
	weights map[string]*onnxpb.TensorProto
	counted map[string]bool
	// channels is the number of channels of each tensor that a convolution
	// reads in blocks.
	channels map[string]int64
}

func newWalk(m *Model, batch int) *walk {
	g := m.proto.GetGraph()
	w := &walk{
		graph:   &Graph{Batch: batch, Operators: make([]Operator, 0, len(g.GetNode())), Unknown: []string{}},
		opset:   m.Opset(),
		values:  make(map[string]shape.Value, len(g.GetNode())+len(g.GetInitializer())),
		weights: make(map[string]*onnxpb.TensorProto, len(g.GetInitializer())),
		counted: make(map[string]bool),
	}
	for _, t := range g.GetInitializer() {
		w.weights[t.GetName()] = t
		w.values[t.GetName()] = shape.OfTensor(t)
	}
	for _, t := range g.GetSparseInitializer() {
		w.values[t.GetValues().GetName()] = shape.Value{Elem: onnxpb.TensorProto_DataType(t.GetValues().GetDataType()), Shape: t.GetDims()}
	}
	for _, in := range m.inputs() {
		t := in.GetType().GetTensorType()
		v := shape.Value{Elem: onnxpb.TensorProto_DataType(t.GetElemType()), Shape: declaredShape(t)}
		if len(v.Shape) > 0 && v.Shape[0] < 0 {
			v.Shape[0] = int64(batch)
		}
		w.values[in.GetName()] = v
		w.graph.Inputs = append(w.graph.Inputs, public(in.GetName(), v))
	}
	w.channels = blockedChannels(g.GetNode(), w.weights)
	return w
}

func (w *walk) add(i int, node *onnxpb.NodeProto) error {
	op := Operator{Name: node.GetName(), Type: node.GetOpType(), Node: node}
	if op.Name == "" {
		op.Name = fmt.Sprintf("%s#%d", node.GetOpType(), i)
	}
	if d := node.GetDomain(); d != "" && d != "ai.onnx" {
		op.Type = d + "." + op.Type
	}
	var inputs []shape.Value
	for _, name := range node.GetInput() {
		v, ok := w.values[name]
		if !ok && name != "" {
			return fmt.Errorf("operator %q (%s) reads %q, which nothing before it computes; the model is damaged", op.Name, op.Type, name)
		}
		inputs = append(inputs, v)
		if name != "" {
			op.Inputs = append(op.Inputs, public(name, v))
		}
		w.count(&op, name)
	}
	outputs, _, err := shape.Infer(node, w.opset, inputs)
	if err != nil {
		return fmt.Errorf("operator %q (%s) cannot run at a batch of %d: %w", op.Name, op.Type, w.graph.Batch, err)
	}
	if isBlocked(node, "ReorderInput") && len(inputs) > 0 {
		w.pad(node, inputs[0], outputs)
	}
	for i, name := range node.GetOutput() {
		w.values[name] = outputs[i]
		if name != "" {
			op.Outputs = append(op.Outputs, public(name, outputs[i]))
		}
	}
	w.cost(&op, inputs, outputs)
	if holdsGraph(node) {
		w.graph.ControlFlow = append(w.graph.ControlFlow, op.Name)
	}
	w.graph.Operators = append(w.graph.Operators, op)
	return nil
}

func (w *walk) cost(op *Operator, inputs, outputs []shape.Value) {
	flops := shape.Cost(op.Node, inputs, outputs)
	op.FLOPs = max(flops, 0)
	w.graph.FLOPs += min(op.FLOPs, math.MaxInt64-w.graph.FLOPs)
	known := func(v Value) bool { return v.Shape != nil && !slices.Contains(v.Shape, -1) }
	if flops < 0 || slices.ContainsFunc(op.Outputs, func(v Value) bool { return !known(v) }) {
		w.graph.Unknown = append(w.graph.Unknown, op.Name)
	}
}

func holdsGraph(node *onnxpb.NodeProto) bool {
	return slices.ContainsFunc(node.GetAttribute(), func(a *onnxpb.AttributeProto) bool {
		return a.GetG() != nil || len(a.GetGraphs()) > 0
	})
}

// count adds a weight to an operator, and to the graph if no earlier operator
// reads it. Integer tensors of one dimension are shapes, axes and indices, not
// weights.
func (w *walk) count(op *Operator, name string) {
	t, ok := w.weights[name]
	v := w.values[name]
	if n := v.Elements(); ok && n > 0 && !(v.Ints != nil && len(v.Shape) < 2) {
		bytes := n
		if size := int64(elementType(t.GetDataType()).Size()); size > 1 && n < math.MaxInt64/size {
			bytes = n * size
		}
		op.Parameters += min(n, math.MaxInt64-op.Parameters)
		op.ParameterBytes += min(bytes, math.MaxInt64-op.ParameterBytes)
		if !w.counted[name] {
			w.counted[name] = true
			w.graph.Parameters += min(n, math.MaxInt64-w.graph.Parameters)
			w.graph.ParameterBytes += min(bytes, math.MaxInt64-w.graph.ParameterBytes)
		}
	}
}

func public(name string, v shape.Value) Value {
	return Value{Name: name, Type: elementType(int32(v.Elem)), Shape: v.Shape, Contents: v.Ints, Constant: v.Constant}
}
