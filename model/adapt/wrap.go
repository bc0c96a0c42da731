package adapt

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// rows ends the names of inputs whose batch is in front, within a model, and joined those of
// outputs: a tensor may be both.
const (
	rows   = "@rows"
	joined = "@joined"
)

// InsideInput is the name of an input within a wrapped model: clients' name for a tensor that is
// the same inside.
func InsideInput(i tensor.Info) string {
	if i.Edge != nil {
		return i.Name + rows
	}
	return i.Name
}

// InsideOutput is the name of an output within a wrapped model.
func InsideOutput(o tensor.Info, wide bool) string {
	switch {
	case o.Edge != nil:
		return o.Name + joined
	case wide:
		return o.Name + widened
	}
	return o.Name
}

// Outside gives the inputs and outputs in an engine's message the names that clients know, and says
// what a sequence is that is no tensor.
func Outside(message string) string {
	if _, name, ragged := strings.Cut(message, "Name:'"); ragged && strings.Contains(name, stacked+"'") {
		name, _, _ = strings.Cut(name, stacked+"'")
		return fmt.Sprintf("output %q is a sequence of tensors of several shapes; export the model with one output for each, or make them one shape with Pad", name)
	}
	return strings.NewReplacer(rows, "", joined, "", widened, "").Replace(message)
}

// Wrapped is a model whose tensors have the batch as their first dimension.
type Wrapped struct {
	// Model is nil if the file itself is such a model.
	Model *model.Model
	// Inputs and Outputs are in the model's order. Those that clients see otherwise have an
	// Edge.
	Inputs, Outputs []tensor.Info
	// Wide says which outputs the model computes in 32 bits instead of 16.
	Wide []bool
}

// Wrap puts the batch of a proposal's model in front of every tensor. outputs are the
// positions of the batch dimension in the outputs. proposal is nil for a model that takes one
// request an execution; every tensor then gets a first dimension of one row.
func (n *Natural) Wrap(proposal *Proposal, outputs []int) (*Wrapped, error) {
	inputs, from := slices.Repeat([]int{-1}, len(n.Inputs)), n.Model
	if proposal != nil {
		inputs, from = proposal.Inputs, proposal.Model
	} else {
		outputs = slices.Repeat([]int{-1}, len(n.Outputs))
	}
	w := &Wrapped{Wide: slices.Clone(n.Wide)}
	for i, in := range n.Inputs {
		w.Inputs = append(w.Inputs, inner(in, inputs[i]))
	}
	changed := n.Changed || proposal == nil || proposal.Freed
	for i, out := range n.Outputs {
		w.Outputs = append(w.Outputs, inner(out, outputs[i]))
		if o := &w.Outputs[i]; n.inputs[out.Name] && o.Edge == nil {
			o.Edge = &tensor.Edge{Shape: slices.Clone(o.Shape)}
		}
		// The file says that it has a fixed number of rows, and it has not.
		changed = changed || outputs[i] >= 0 && out.Shape[outputs[i]] >= 0
	}
	if !changed && w.same() {
		w.Wide = make([]bool, len(n.Outputs))
		return w, nil
	}
	p := proto.CloneOf(shell(from.Proto()))
	p.Graph.Initializer = from.Proto().GetGraph().GetInitializer()
	e := &editor{proto: p, opset: opset(p)}
	var err error
	if p.Graph.Input, err = e.inputs(w.Inputs); err != nil {
		return nil, err
	}
	e.outputs(w.Outputs, w.Wide)
	w.Model = n.source.With(p)
	return w, nil
}

// same reports whether clients see all tensors as the engine does, and 16-bit outputs have a
// shape that is known before a run.
func (w *Wrapped) same() bool {
	for i, o := range w.Outputs {
		if o.Edge != nil || w.Wide[i] && slices.Contains(o.Shape[1:], -1) {
			return false
		}
	}
	return !slices.ContainsFunc(w.Inputs, func(i tensor.Info) bool { return i.Edge != nil })
}

// inner describes a tensor as the engine takes it. own is its description by the model.
func inner(own tensor.Info, axis int) tensor.Info {
	in := tensor.Info{Name: own.Name, Type: own.Type, Shape: []int64{-1}, Empty: own.Empty}
	if axis < 0 {
		in.Shape = append(in.Shape, own.Shape...)
		in.Edge = &tensor.Edge{Shape: slices.Clone(own.Shape), Axis: -1}
		return in
	}
	if len(own.Shape) == 0 { // The file says nothing of it, and it has an axis.
		return in
	}
	in.Shape = append(in.Shape, slices.Delete(slices.Clone(own.Shape), axis, axis+1)...)
	if axis > 0 {
		shape := slices.Clone(own.Shape)
		shape[axis] = -1
		in.Edge = &tensor.Edge{Shape: shape, Axis: axis}
	}
	return in
}

// editor puts operators in front of a graph's inputs and behind its outputs.
type editor struct {
	proto *onnxpb.ModelProto
	opset int64
}

func (e *editor) inputs(infos []tensor.Info) ([]*onnxpb.ValueInfoProto, error) {
	g := e.proto.Graph
	var front []*onnxpb.NodeProto
	weights := make(map[string]bool)
	for _, t := range g.GetInitializer() {
		weights[t.GetName()] = true
	}
	out := make([]*onnxpb.ValueInfoProto, 0, len(g.GetInput()))
	at := 0
	for _, v := range g.GetInput() {
		if weights[v.GetName()] {
			out = append(out, v)
			continue
		}
		info := infos[at]
		at++
		if info.Edge == nil {
			freeFirst(v)
			out = append(out, v)
			continue
		}
		name := info.Name + rows
		out = append(out, declare(name, info))
		if info.Edge.Axis < 0 {
			front = append(front, e.withAxes("Squeeze", name, info.Name))
		} else {
			front = append(front, transpose(name, info.Name, toOwn(info.Edge.Axis, len(info.Edge.Shape))))
		}
	}
	if at != len(infos) {
		return nil, fmt.Errorf("the model has %d inputs, not %d", at, len(infos))
	}
	g.Node = append(front, g.Node...)
	return out, nil
}

func (e *editor) outputs(infos []tensor.Info, wideOutputs []bool) {
	g := e.proto.Graph
	for i, v := range g.Output {
		info := infos[i]
		if info.Edge == nil {
			if v.GetType().GetTensorType().GetShape() != nil {
				declared := info
				if wideOutputs[i] {
					declared.Type = tensor.FP32
				}
				g.Output[i] = declare(v.GetName(), declared)
			}
			continue
		}
		kind := info
		if wideOutputs[i] {
			kind.Type = tensor.FP32
		}
		name := info.Name + joined
		switch axis := info.Edge.Axis; {
		case axis < 0:
			g.Node = append(g.Node, e.withAxes("Unsqueeze", v.GetName(), name))
		case axis == 0: // It is also an input.
			g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Identity"), Name: proto.String(name), Input: []string{v.GetName()}, Output: []string{name}})
		default:
			g.Node = append(g.Node, transpose(v.GetName(), name, toFront(info.Edge.Axis, len(info.Edge.Shape))))
		}
		g.Output[i] = declare(name, kind)
		if v.GetType().GetTensorType().GetShape() == nil {
			g.Output[i].Type.GetTensorType().Shape = nil // Its rank is only known while the model runs.
		}
	}
}

// withAxes is a Squeeze or Unsqueeze of the first dimension.
func (e *editor) withAxes(kind, from, to string) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: proto.String(kind), Name: proto.String(to + "/" + kind), Input: []string{from}, Output: []string{to}}
	if e.opset < 13 {
		n.Attribute = []*onnxpb.AttributeProto{ints("axes", 0)}
		return n
	}
	const name = "faas-infer/first-axis"
	if !slices.ContainsFunc(e.proto.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == name }) {
		e.proto.Graph.Initializer = append(slices.Clip(e.proto.Graph.Initializer), &onnxpb.TensorProto{
			Name: proto.String(name), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, Int64Data: []int64{0},
		})
	}
	n.Input = append(n.Input, name)
	return n
}

// freeFirst makes the first dimension of a declared shape dynamic.
func freeFirst(v *onnxpb.ValueInfoProto) {
	dims := v.GetType().GetTensorType().GetShape().GetDim()
	if len(dims) > 0 && dims[0].GetDimParam() == "" {
		dims[0].Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "rows"}
	}
}

// declare describes an input or output of the graph.
func declare(name string, info tensor.Info) *onnxpb.ValueInfoProto {
	shape := new(onnxpb.TensorShapeProto)
	for i, d := range info.Shape {
		dim := new(onnxpb.TensorShapeProto_Dimension)
		switch {
		case i == 0:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "rows"}
		case d >= 0:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(model.ElementCode(info.Type))), Shape: shape},
	}}}
}

// toFront is the permutation that moves an axis to the front.
func toFront(axis, rank int) []int64 {
	perm := []int64{int64(axis)}
	for i := range rank {
		if i != axis {
			perm = append(perm, int64(i))
		}
	}
	return perm
}

// toOwn is the permutation that moves the first axis to another place.
func toOwn(axis, rank int) []int64 {
	perm := make([]int64, 0, rank)
	for i := range rank - 1 {
		perm = append(perm, int64(i+1))
	}
	return slices.Insert(perm, axis, 0)
}

func transpose(from, to string, perm []int64) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{
		OpType: proto.String("Transpose"), Name: proto.String(to + "/Transpose"), Input: []string{from}, Output: []string{to},
		Attribute: []*onnxpb.AttributeProto{ints("perm", perm...)},
	}
}

func ints(name string, values ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: values}
}

// castTo is a Cast to 32-bit floating-point numbers.
func castTo(opset int64, from, to string) *onnxpb.NodeProto {
	a := &onnxpb.AttributeProto{Name: proto.String("to"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(int64(onnxpb.TensorProto_FLOAT))}
	if opset > 0 && opset < 6 {
		a = &onnxpb.AttributeProto{Name: proto.String("to"), Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte("FLOAT")}
	}
	return &onnxpb.NodeProto{OpType: proto.String("Cast"), Name: proto.String(to + "/Cast"), Input: []string{from}, Output: []string{to}, Attribute: []*onnxpb.AttributeProto{a}}
}

// firstOpset is what a model without operators of the standard domain gets for those that
// this package adds.
const firstOpset = 17

// opset is the version of the standard operators in a model. It adds one if there is none.
func opset(p *onnxpb.ModelProto) int64 {
	for _, o := range p.GetOpsetImport() {
		if o.GetDomain() == "" || o.GetDomain() == "ai.onnx" {
			return o.GetVersion()
		}
	}
	p.OpsetImport = append(p.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: proto.String(""), Version: proto.Int64(firstOpset)})
	return firstOpset
}
