package savedmodel

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
)

// Domain is that of the nodes of TensorFlow's operators: the type of a
// convolution is Domain.Conv2D.
const Domain = "tensorflow"

// Graph infers the operator graph of the signature at a batch size. Weights are
// inputs with a Constant, nodes that only pass a tensor on are left out, and
// attributes are those of the file, as ONNX has them.
//
// A loop or a condition is one operator, named in ControlFlow. The FLOPs of one
// whose course does not depend on the data, as of a recurrent layer over a known
// number of steps, are known and counted; others are among the Unknown.
//
// An input without a dynamic leading dimension is an error that wraps
// [model.ErrNoBatch]; so is, without that, an operator whose inputs do not fit
// it at that batch size.
func (m *Model) Graph(batch int) (*model.Graph, error) {
	if batch < 1 || batch > model.MaxBatch {
		return nil, fmt.Errorf("a batch of %d: it must be from 1 to %d", batch, model.MaxBatch)
	}
	given, err := m.fed(batch)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := newBuilder(m, batch, given)
	e := &evaluation{model: m, steps: maxSteps + len(m.graph.Nodes)}
	outputs, _, err := e.run(m.graph, given, b)
	if err == nil {
		err = b.err
	}
	if err != nil {
		return nil, fmt.Errorf("at a batch of %d: %w", batch, err)
	}
	for i, v := range outputs {
		if v.name == "" {
			return nil, fmt.Errorf("nothing computes output %q; the model is damaged", m.outputs[i].key)
		}
		b.graph.Outputs = append(b.graph.Outputs, public(v))
	}
	return b.graph, nil
}

// builder puts a graph together while it is looked at.
type builder struct {
	graph *model.Graph
	// taken are the names of tensors, counted the weights.
	taken, counted map[string]bool
	// results are what callers name the tensors that they get.
	results map[flow.Ref]string
	err     error
}

func newBuilder(m *Model, batch int, given []known) *builder {
	b := &builder{
		graph: &model.Graph{Batch: batch, Operators: make([]model.Operator, 0, len(m.graph.Nodes)), Unknown: []string{}},
		taken: make(map[string]bool), counted: make(map[string]bool), results: make(map[flow.Ref]string),
	}
	for _, v := range given {
		b.taken[v.name] = true
		b.graph.Inputs = append(b.graph.Inputs, public(v))
	}
	for i, ref := range m.graph.Outputs {
		if key := m.outputs[i].key; b.results[ref] == "" && !b.taken[key] {
			b.results[ref], b.taken[key] = key, true
		}
	}
	return b
}

// unique is a name that no other tensor has.
func (b *builder) unique(name string) string {
	free := name
	for i := 1; b.taken[free]; i++ {
		free = fmt.Sprintf("%s_%d", name, i)
	}
	b.taken[free] = true
	return free
}

func (b *builder) weight(n *flow.Node) string { return b.unique(n.Name) }

func (b *builder) operator(c *call) []string {
	op := model.Operator{Name: c.node.Name, Type: Domain + "." + c.node.Def.GetOp(), FLOPs: max(c.flops, 0)}
	op.Node = &onnxpb.NodeProto{
		Name: &op.Name, OpType: &c.node.Def.Op, Domain: proto.String(Domain), Attribute: attributes(c.node.Def.GetAttr(), c.node.Defaults),
	}
	for _, v := range c.inputs {
		if v.name == "" {
			b.err = fmt.Errorf("operator %q (%s) reads what nothing computes; the model is damaged", op.Name, op.Type)
		}
		op.Node.Input = append(op.Node.Input, v.name)
		op.Inputs = append(op.Inputs, public(v))
		b.count(&op, v)
	}
	complete := c.flops >= 0
	for i, read := range c.node.Read {
		v := &c.outputs[i]
		if read {
			v.name = b.output(c.node, i)
			op.Outputs = append(op.Outputs, public(*v))
			complete = complete && v.Shape != nil && !slices.Contains(v.Shape, -1)
		}
		op.Node.Output = append(op.Node.Output, v.name)
	}
	if !complete {
		b.graph.Unknown = append(b.graph.Unknown, op.Name)
	}
	if c.control {
		b.graph.ControlFlow = append(b.graph.ControlFlow, op.Name)
	}
	b.graph.FLOPs = sum(b.graph.FLOPs, op.FLOPs)
	b.graph.Operators = append(b.graph.Operators, op)
	return op.Node.Output
}

// output names a tensor as TensorFlow does, or as callers do who get it.
func (b *builder) output(n *flow.Node, i int) string {
	if key := b.results[flow.Ref{Node: n, Output: i}]; key != "" {
		return key
	}
	return b.unique(fmt.Sprintf("%s:%d", n.Name, i))
}

// count adds a weight to an operator, and to the graph if it is new. Integers
// whose contents are followed are shapes, axes and paddings, not weights.
func (b *builder) count(op *model.Operator, v known) {
	n := v.Elements()
	if v.Constant == nil || n <= 0 || v.Ints != nil {
		return
	}
	bytes := int64(math.MaxInt64)
	if size := elementSize(v.Elem); n < math.MaxInt64/size {
		bytes = n * size
	}
	op.Parameters = sum(op.Parameters, n)
	op.ParameterBytes = sum(op.ParameterBytes, bytes)
	if !b.counted[v.name] {
		b.counted[v.name] = true
		b.graph.Parameters = sum(b.graph.Parameters, n)
		b.graph.ParameterBytes = sum(b.graph.ParameterBytes, bytes)
	}
}

func public(v known) model.Value {
	return model.Value{Name: v.name, Type: elementType(v.Elem), Shape: v.Shape, Contents: v.Ints, Constant: v.Constant}
}
