package operator

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// irVersion is the IR version of the models. Every engine since 2022 reads it.
const irVersion = 8

// Model makes a model of the operator alone. Load it without optimisation, so that the
// same operator runs as in the original model.
//
// Weights are initialisers of seeded values like those of trained weights. Activations,
// and contents that grow with the batch, are inputs, in the order of the operator's
// inputs. Dimensions that grow with the batch are dynamic, in any position.
//
// No input or output is a scalar, because engines' bindings do not take scalars. A
// scalar input is an initialiser, or is sent as a vector if it grows. A scalar output
// stays inside. An operator without inputs gets one that it does not read. After an
// [Operator.View] comes a Shape, which reads no data, because an output of the model
// would be copied.
func (o *Operator) Model() (*model.Model, error) {
	if o.Unknown && o.Domain != "" && o.Domain != "com.microsoft" && o.Domain != "com.microsoft.nchwc" {
		return nil, fmt.Errorf("%s cannot be measured alone: its domain %s is unknown", o.Type, o.Domain)
	}
	g := &onnxpb.GraphProto{Name: proto.String(o.name())}
	node := &onnxpb.NodeProto{OpType: proto.String(o.name()), Attribute: o.Attributes}
	if o.Domain != "" {
		node.Domain = proto.String(o.Domain)
	}
	sum := fnv.New64a()
	sum.Write([]byte(o.Key()))
	for i := range o.Inputs {
		name, err := o.place(g, i, rand.New(rand.NewPCG(sum.Sum64(), uint64(i))))
		if err != nil {
			return nil, fmt.Errorf("input %d of %s: %w", i, o.Type, err)
		}
		node.Input = append(node.Input, name)
	}
	if len(g.Input) == 0 {
		g.Input = append(g.Input, declare(unread.Name, unread.Type, one))
	}
	g.Node = append(g.Node, node)
	for i, out := range o.Outputs {
		if out.Role == Absent {
			node.Output = append(node.Output, "")
			continue
		}
		if out.Type.Size() == 0 {
			return nil, fmt.Errorf("output %d of %s has elements that no request can carry", i, o.Type)
		}
		node.Output = append(node.Output, outputName(i))
	}
	o.finish(g)
	for _, r := range o.results() {
		g.Output = append(g.Output, declare(r.name, r.Type, r.Shape))
	}
	return model.FromProto(&onnxpb.ModelProto{
		IrVersion: proto.Int64(irVersion), ProducerName: proto.String("faas-infer"), Graph: g, OpsetImport: o.imports(),
	})
}

func outputName(i int) string { return fmt.Sprintf("out%d", i) }

// result is an output of the operator's model.
type result struct {
	name string
	Operand
}

// results are the outputs of the operator's model: the operator's own except scalars,
// or those of the node after it.
func (o *Operator) results() (all []result) {
	only := Operand{}
	for i, out := range o.Outputs {
		switch {
		case out.Role == Absent:
		case len(out.Shape) == 0:
			only = out
		case o.View:
			return []result{{"shape", Operand{Type: tensor.Int64, Shape: []Dim{{Fixed: int64(len(out.Shape))}}}}}
		default:
			all = append(all, result{outputName(i), out})
		}
	}
	if all == nil {
		return []result{{"vector", Operand{Type: only.Type, Shape: one}}}
	}
	return all
}

// finish adds the node after a view, or after an operator with only scalar outputs.
func (o *Operator) finish(g *onnxpb.GraphProto) {
	at := slices.IndexFunc(o.Outputs, func(out Operand) bool { return out.Role != Absent })
	after := o.results()[0].name
	switch {
	case at < 0:
	case after == "shape":
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Shape"), Input: []string{outputName(at)}, Output: []string{after}})
	case after == "vector":
		shape := &onnxpb.TensorProto{Name: proto.String("one"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, Int64Data: []int64{1}}
		g.Initializer = append(g.Initializer, shape)
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Reshape"), Input: []string{outputName(at), "one"}, Output: []string{after}})
	}
}

// Results are the outputs of the operator's [Operator.Model] at a batch size, in the
// model's order: their names, types and shapes, without data. They may differ from the
// operator's own outputs.
func (o *Operator) Results(batch int) []tensor.Tensor {
	var all []tensor.Tensor
	for _, r := range o.results() {
		all = append(all, tensor.Tensor{Name: r.name, Type: r.Type, Shape: r.At(batch)})
	}
	return all
}

// imports are the operator's domain and the standard domain.
func (o *Operator) imports() []*onnxpb.OperatorSetIdProto {
	const standard = 17
	of := func(domain string, version int64) *onnxpb.OperatorSetIdProto {
		return &onnxpb.OperatorSetIdProto{Domain: proto.String(domain), Version: proto.Int64(max(1, version))}
	}
	if o.Domain == "" {
		return []*onnxpb.OperatorSetIdProto{of("", o.Opset)}
	}
	return []*onnxpb.OperatorSetIdProto{of("", standard), of(o.Domain, o.Opset)}
}

// place adds input i to the graph, as an input or as an initialiser, and
// returns its name.
func (o *Operator) place(g *onnxpb.GraphProto, i int, rng *rand.Rand) (string, error) {
	in, name := o.Inputs[i], fmt.Sprintf("in%d", i)
	switch {
	case in.Role == Absent:
		return "", nil
	case in.Same > 0:
		return fmt.Sprintf("in%d", in.Same-1), nil
	case in.Type.Size() == 0:
		return "", fmt.Errorf("no values can be made for its element type")
	case in.sent() && len(in.Shape) == 0:
		g.Input = append(g.Input, declare(name, in.Type, one))
		return scalar(g, name), nil
	case in.sent():
		g.Input = append(g.Input, declare(name, in.Type, in.Shape))
		return name, nil
	}
	t, err := o.constant(i, rng)
	if err != nil {
		return "", err
	}
	t.Name = proto.String(name)
	g.Initializer = append(g.Initializer, t)
	return name, nil
}

// one is the shape in which a scalar is sent.
var one = []Dim{{Fixed: 1}}

// scalar turns an input of one element into a scalar, without a copy.
func scalar(g *onnxpb.GraphProto, name string) string {
	none := &onnxpb.TensorProto{Name: proto.String(name + "_shape"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{0}}
	g.Initializer = append(g.Initializer, none)
	g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Reshape"), Input: []string{name, none.GetName()}, Output: []string{name + "_scalar"}})
	return name + "_scalar"
}

// constant is input i as an initialiser.
func (o *Operator) constant(i int, rng *rand.Rand) (*onnxpb.TensorProto, error) {
	in := o.Inputs[i]
	if in.Constant != nil {
		return proto.CloneOf(in.Constant), nil
	}
	t := &onnxpb.TensorProto{DataType: proto.Int32(int32(model.ElementCode(in.Type))), Dims: in.At(0)}
	if in.Role == Contents {
		for _, d := range in.Contents {
			t.RawData = appendWhole(t.RawData, in.Type, d.Fixed)
		}
		return t, nil
	}
	data, err := o.filling(i, t.Dims).fill(t.Dims, rng)
	t.RawData = data
	return t, err
}

// declare describes an input or output. The name of a dimension that grows says how.
func declare(name string, t tensor.Type, shape []Dim) *onnxpb.ValueInfoProto {
	dims := make([]*onnxpb.TensorShapeProto_Dimension, len(shape))
	for i, d := range shape {
		dims[i] = &onnxpb.TensorShapeProto_Dimension{}
		if d.PerRow == 0 {
			dims[i].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d.Fixed}
		} else {
			dims[i].Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d.String()}
		}
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(model.ElementCode(t))), Shape: &onnxpb.TensorShapeProto{Dim: dims},
		},
	}}}
}
