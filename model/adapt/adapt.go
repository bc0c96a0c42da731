// Package adapt brings any model into the form that engines take: every tensor has the batch
// as its first dimension. It moves the batch of a tensor that has it elsewhere, frees a batch
// that is fixed to 1, and puts a dimension of one row in front of every tensor of a model that
// cannot be batched. It runs nothing: package onnxruntime tries its proposals on sample rows
// and takes the first under which no row sees another. Begin with [Read] and
// [Natural.Proposals].
package adapt

import (
	"fmt"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Natural is a model with the tensors that clients send and get: maps and sequences among its
// outputs have become tensors, and everything else is as in its file.
type Natural struct {
	// Inputs and Outputs have the model's own shapes. Dynamic dimensions are -1.
	Inputs, Outputs []tensor.Info
	// Model computes them. Its 16-bit floating-point outputs are 32 bits wide if Wide says so.
	Model *model.Model
	// Wide lists the outputs that Model computes in 32 bits, by their number: a binding
	// cannot read 16-bit elements of an unknown shape.
	Wide []bool
	// Changed says that the file's tensors are not these: Model differs from the file, or the
	// file declares outputs wrongly.
	Changed bool

	source *model.Model
	names  [][]string // of the inputs' dynamic dimensions, "" for those without a name
	// inputs are the inputs' names, open the outputs of which the file declares no shape.
	inputs map[string]bool
	open   []bool
}

// Read describes a model. The error names an input or output that no request can carry.
func Read(m *model.Model) (*Natural, error) {
	n := &Natural{source: m, inputs: make(map[string]bool)}
	g := proto.CloneOf(shell(m.Proto()))
	g.Graph.Initializer = m.Proto().GetGraph().GetInitializer()
	flat, err := flatten(g)
	if err != nil {
		return nil, err
	}
	local := localise(g.GetGraph())
	n.Changed = flat || local
	n.Model = m.With(g)
	for _, v := range inputsOf(g) {
		t := v.GetType().GetTensorType()
		if t == nil {
			return nil, fmt.Errorf("input %q is not a tensor; export the model with tensors as its inputs", v.GetName())
		}
		names := make([]string, len(t.GetShape().GetDim()))
		for i, d := range t.GetShape().GetDim() {
			names[i] = d.GetDimParam()
		}
		n.names = append(n.names, names)
		n.inputs[v.GetName()] = true
	}
	for _, v := range g.GetGraph().GetOutput() {
		n.open = append(n.open, v.GetType().GetTensorType().GetShape() == nil)
		n.Changed = n.Changed || n.inputs[v.GetName()] // An engine does not copy it to where the output belongs.
	}
	n.Inputs, n.Outputs = n.Model.Inputs(), n.Model.Outputs()
	if len(n.Inputs) == 0 {
		return nil, fmt.Errorf("the model has no input, so its answer never changes; make an input of one of its constants")
	}
	for _, infos := range [][]tensor.Info{n.Inputs, n.Outputs} {
		for _, i := range infos {
			if i.Type == "" {
				return nil, fmt.Errorf("%q has elements of a type that requests cannot carry; convert it inside the model, for example with Cast", i.Name)
			}
		}
	}
	for i := range n.Inputs {
		n.Inputs[i].Empty = mayBeEmpty(g.GetGraph(), n.Inputs[i].Name)
	}
	n.widen(g)
	return n, nil
}

// mayBeEmpty reports whether an input is only put before or behind another, and its shape read.
func mayBeEmpty(g *onnxpb.GraphProto, input string) bool {
	for _, node := range g.GetNode() {
		kind := node.GetOpType()
		if slices.Contains(node.GetInput(), input) && kind != "Concat" && kind != "Shape" {
			return false
		}
		for _, a := range node.GetAttribute() {
			if a.GetG() != nil && !mayBeEmpty(a.GetG(), input) {
				return false
			}
		}
	}
	return true
}

// Example are shapes of one row as a person may write them.
func (n *Natural) Example() tensor.Shapes {
	for s := range n.Model.GuessShapes(nil, nil) {
		return s
	}
	return nil
}

// shell is the message without its weights, which a clone must not copy.
func shell(p *onnxpb.ModelProto) *onnxpb.ModelProto {
	out := &onnxpb.ModelProto{
		IrVersion: p.IrVersion, OpsetImport: p.OpsetImport, ProducerName: p.ProducerName, ProducerVersion: p.ProducerVersion,
		Domain: p.Domain, ModelVersion: p.ModelVersion, DocString: p.DocString, Functions: p.Functions,
	}
	g := p.GetGraph()
	out.Graph = &onnxpb.GraphProto{
		Node: g.GetNode(), Name: g.Name, SparseInitializer: g.GetSparseInitializer(), DocString: g.DocString,
		Input: g.GetInput(), Output: g.GetOutput(), ValueInfo: g.GetValueInfo(),
	}
	return out
}

// inputsOf are a graph's inputs without its initialisers.
func inputsOf(p *onnxpb.ModelProto) []*onnxpb.ValueInfoProto {
	weights := make(map[string]bool)
	for _, t := range p.GetGraph().GetInitializer() {
		weights[t.GetName()] = true
	}
	var in []*onnxpb.ValueInfoProto
	for _, v := range p.GetGraph().GetInput() {
		if !weights[v.GetName()] {
			in = append(in, v)
		}
	}
	return in
}

// widened ends the names of outputs that [Natural.widen] cast.
const widened = "@wide"

// widen casts outputs of 16-bit floating-point numbers to 32 bits, unless all their
// dimensions but the first are fixed.
func (n *Natural) widen(p *onnxpb.ModelProto) {
	n.Wide = make([]bool, len(n.Outputs))
	for i, o := range n.Outputs {
		if o.Type != tensor.FP16 && o.Type != tensor.BF16 {
			continue
		}
		n.Wide[i] = true
		v := p.Graph.Output[i]
		p.Graph.Node = append(p.Graph.Node, castTo(opset(p), v.GetName(), v.GetName()+widened))
		v.Name = proto.String(v.GetName() + widened)
		v.GetType().GetTensorType().ElemType = proto.Int32(int32(onnxpb.TensorProto_FLOAT))
	}
}

// Observe corrects what the file declares of an output's shape by the shape that a run
// gave: exporters write hints that are wrong, or none.
func (n *Natural) Observe(output int, ran []int64) {
	o := &n.Outputs[output]
	if n.open[output] || len(o.Shape) != len(ran) { // Another branch may give another rank than a scalar's.
		o.Shape = slices.Repeat([]int64{-1}, max(len(ran), 1))
		n.Changed = true
		return
	}
	o.Shape = slices.Clone(o.Shape)
	for i, d := range ran {
		if o.Shape[i] >= 0 && o.Shape[i] != d {
			o.Shape[i] = -1
			n.Changed = true
		}
	}
}

// Proposal is a place of the batch in the inputs that may be right.
type Proposal struct {
	// Inputs are the positions of the batch dimension in the inputs' own shapes.
	Inputs []int
	// Model computes the natural tensors with any number of rows.
	Model *model.Model
	// Freed says that the batch was fixed to 1.
	Freed bool
}

// Proposals lists the places where the batch may be, the likeliest first. It is empty for a
// model that cannot be batched; why then says what would have to change.
func (n *Natural) Proposals() (all []Proposal, why string) {
	if axes := n.leading(); axes != nil {
		all = append(all, Proposal{Inputs: axes, Model: n.Model})
	}
	for _, name := range n.shared() {
		axes := n.named(name)
		if axes != nil && !slices.ContainsFunc(all, func(p Proposal) bool { return slices.Equal(p.Inputs, axes) }) {
			all = append(all, Proposal{Inputs: axes, Model: n.Model})
		}
	}
	if len(all) > 0 {
		return all, ""
	}
	for _, in := range n.Inputs {
		switch {
		case len(in.Shape) == 0:
			return nil, fmt.Sprintf("input %q has no dimensions; export the model with a dynamic first axis in every input", in.Name)
		case in.Shape[0] > 1:
			return nil, fmt.Sprintf("input %q has the fixed shape %v; export the model with a dynamic first axis", in.Name, in.Shape)
		}
	}
	if freed := n.free(); freed != nil {
		return []Proposal{{Inputs: make([]int, len(n.Inputs)), Model: freed, Freed: true}}, ""
	}
	return nil, "some inputs have a dynamic first axis and others have not; export the model with the batch as the first axis of every input"
}

// leading are the axes if the batch is the first axis of each input, or has its name in
// another one. It is nil if an input has neither.
func (n *Natural) leading() []int {
	axes, name := make([]int, len(n.Inputs)), ""
	for i, in := range n.Inputs {
		if len(in.Shape) > 0 && in.Shape[0] < 0 {
			name = n.names[i][0]
			break
		}
	}
	for i, in := range n.Inputs {
		switch {
		case len(in.Shape) > 0 && in.Shape[0] < 0:
		case name != "" && slices.Contains(n.names[i], name):
			axes[i] = slices.Index(n.names[i], name)
		default:
			return nil
		}
	}
	return axes
}

// shared are the names of dynamic dimensions that every input has and that mean the batch:
// words that do not see each other are no rows.
func (n *Natural) shared() (names []string) {
	for _, name := range n.names[0] {
		everywhere := !slices.ContainsFunc(n.names, func(of []string) bool { return !slices.Contains(of, name) })
		if batchNames.MatchString(name) && everywhere {
			names = append(names, name)
		}
	}
	return names
}

// batchNames are the names that exporters give the batch.
var batchNames = regexp.MustCompile(`(?i)batch|^(n|b|bs)$`)

// named are the positions of a name in the inputs' shapes, nil if it occurs twice in one.
func (n *Natural) named(name string) []int {
	axes := make([]int, len(n.names))
	for i, of := range n.names {
		axes[i] = slices.Index(of, name)
		if slices.Index(of[axes[i]+1:], name) >= 0 {
			return nil
		}
	}
	return axes
}

// Standard reports whether the model can be loaded from its file as it is: the batch is the
// first axis everywhere by what the file declares.
func (n *Natural) Standard() bool {
	dynamic := func(i tensor.Info) bool { return len(i.Shape) > 0 && i.Shape[0] < 0 }
	for _, infos := range [][]tensor.Info{n.Inputs, n.Outputs} {
		for _, i := range infos {
			if !dynamic(i) {
				return false
			}
		}
	}
	for i, o := range n.Outputs {
		if n.Wide[i] && slices.Contains(o.Shape[1:], -1) {
			return false
		}
	}
	return !n.Changed
}
