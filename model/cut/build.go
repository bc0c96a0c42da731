package cut

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Weight says where a weight of a part's model comes from.
type Weight struct {
	// From is the initialiser in the whole model, Region what the part holds of it; nil is
	// all.
	From   *onnxpb.TensorProto
	Region Region
	// Offset and Bytes say where the part's weights file has it.
	Offset, Bytes int64
}

// WeightsFile is the name of a part's weights file, beside its model.
const WeightsFile = "weights.bin"

// inlineBytes is the size up to which a weight is in the model itself. Shapes and axes must
// be: engines need their contents to load a model.
const inlineBytes = 4096

// alignment is that of a weight in the file.
const alignment = 64

// Model makes a model of the part alone. Its weights are in [WeightsFile], which
// [WriteWeights] writes as the returned list says; only small ones are within the model.
// Inputs and outputs have the names that [Part.Inputs] and [Part.Outputs] give.
func (p *Part) Model() (*model.Model, []Weight, error) { return p.build(false) }

// Referring makes a model of the part alone whose weights stay where the whole model has them:
// the entries of its initialisers are the whole model's own, with offsets into the same files
// and what an engine has noted there. The part must be a whole group, as only whole weights can
// stay.
func (p *Part) Referring() (*model.Model, error) {
	for _, w := range p.weights() {
		if w.region != nil {
			return nil, fmt.Errorf("the part holds %v of the weight %q; only whole weights can stay in the model's file", w.region, w.name)
		}
	}
	m, _, err := p.build(true)
	return m, err
}

func (p *Part) build(refer bool) (*model.Model, []Weight, error) {
	b := builder{part: p, model: p.group.model, graph: &onnxpb.GraphProto{}, have: make(map[string]bool), refer: refer}
	from := b.model.source.Proto()
	b.graph.Name = proto.String(from.GetGraph().GetName())
	if p.entire {
		b.entire(from.GetGraph())
		m, err := b.finish(from)
		return m, b.weights, err
	}
	for _, in := range p.Inputs() {
		b.graph.Input = append(b.graph.Input, declare(in))
		b.transpose(in.As, in.Name, back(in.value.order()))
	}
	for _, s := range p.steps {
		if err := b.add(s); err != nil {
			return nil, nil, err
		}
	}
	for _, out := range p.Outputs() {
		held := b.slice(out.Name, p.held[out.Name], p.outputs[out.Name])
		b.transpose(held, out.As, out.value.order())
		b.graph.Output = append(b.graph.Output, declare(out))
	}
	m, err := b.finish(from)
	return m, b.weights, err
}

func (b *builder) finish(from *onnxpb.ModelProto) (*model.Model, error) {
	return model.FromProto(&onnxpb.ModelProto{
		IrVersion: from.IrVersion, ProducerName: from.ProducerName, OpsetImport: from.OpsetImport, Functions: from.Functions, Graph: b.graph,
	})
}

// entire takes the whole model's graph as it is, but for where its weights are.
func (b *builder) entire(g *onnxpb.GraphProto) {
	weights := make(map[string]bool)
	for _, t := range g.GetInitializer() {
		weights[t.GetName()] = true
		b.weight(b.model.values[t.GetName()], nil)
	}
	for _, in := range g.GetInput() {
		if !weights[in.GetName()] {
			b.graph.Input = append(b.graph.Input, in)
		}
	}
	b.graph.Node, b.graph.Output, b.graph.SparseInitializer = g.GetNode(), g.GetOutput(), g.GetSparseInitializer()
}

// builder makes a part's graph.
type builder struct {
	part    *Part
	model   *Model
	graph   *onnxpb.GraphProto
	weights []Weight
	offset  int64
	// have are the weights, slices and constants that the graph has already.
	have map[string]bool
	// refer keeps the initialisers as they are.
	refer bool
}

// declare describes an input or output. A dimension that grows with the batch is dynamic.
func declare(t Tensor) *onnxpb.ValueInfoProto {
	v := t.value
	of := &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(model.ElementCode(v.elem)))}
	if v.shape != nil {
		of.Shape = &onnxpb.TensorShapeProto{}
		shape, further := permuted(v.shape, v.order()), permuted(v.further, v.order())
		for d, size := range shape {
			if t.Region != nil {
				size = t.Region[d].Size()
			}
			dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}}
			switch {
			case shape[d] == reference && further[d] == reference+1:
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "batch"}
			case shape[d] != further[d] || size < 0:
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: fmt.Sprintf("%s %d", t.As, d)}
			}
			of.Shape.Dim = append(of.Shape.Dim, dim)
		}
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(t.As), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: of}}}
}

// transpose adds a Transpose unless there is nothing to do.
func (b *builder) transpose(from, to string, perm []int64) {
	if len(perm) == 0 {
		return
	}
	b.graph.Node = append(b.graph.Node, &onnxpb.NodeProto{
		Name: proto.String(to), OpType: proto.String("Transpose"), Input: []string{from}, Output: []string{to},
		Attribute: []*onnxpb.AttributeProto{intsAttribute("perm", perm)},
	})
}

// add adds an operator, with what its inputs need before it.
func (b *builder) add(s step) error {
	o := &b.model.nodes[s.operator]
	n := proto.CloneOf(o.Node)
	for k, name := range n.GetInput() {
		v := b.model.values[name]
		switch {
		case v == nil:
		case v.weight != nil:
			n.Input[k] = b.weight(v, s.in[k])
		default:
			n.Input[k] = b.slice(name, b.part.held[name], s.in[k])
		}
	}
	if s.out != nil {
		if err := b.fit(n, o, s); err != nil {
			return err
		}
	}
	b.graph.Node = append(b.graph.Node, n)
	return nil
}

// weight adds a region of a weight and returns its name.
func (b *builder) weight(v *value, r Region) string {
	name := v.name
	if r != nil && !r.equal(whole(v.shape)) {
		name = sliceName(v.name, r)
	} else {
		r = nil
	}
	if b.have[name] {
		return name
	}
	b.have[name] = true
	size := v.bytes(b.model.regionOf(v.name, r), reference)
	external := v.weight.GetDataLocation() == onnxpb.TensorProto_EXTERNAL
	if b.refer || r == nil && !external && (size <= inlineBytes || v.elem.Size() == 0) {
		b.graph.Initializer = append(b.graph.Initializer, v.weight)
		return name
	}
	entry := func(key string, value any) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: proto.String(key), Value: proto.String(fmt.Sprint(value))}
	}
	w := Weight{From: v.weight, Region: r, Offset: b.offset, Bytes: size}
	b.graph.Initializer = append(b.graph.Initializer, &onnxpb.TensorProto{
		Name: proto.String(name), DataType: v.weight.DataType, Dims: b.model.regionOf(v.name, r).Shape(),
		DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
		ExternalData: []*onnxpb.StringStringEntryProto{entry("location", WeightsFile), entry("offset", w.Offset), entry("length", w.Bytes)},
	})
	b.weights = append(b.weights, w)
	b.offset += (size + alignment - 1) / alignment * alignment
	return name
}

// slice adds a Slice from what is held of a tensor to what is needed, and returns the name
// of the result: the tensor itself if that is all.
func (b *builder) slice(name string, held, need Region) string {
	if need == nil || held.equal(need) {
		return name
	}
	out := sliceName(name, need)
	if b.have[out] {
		return out
	}
	b.have[out] = true
	var axes, starts, ends []int64
	for d := range need {
		if held[d] != need[d] {
			axes = append(axes, int64(d))
			starts, ends = append(starts, need[d].From-held[d].From), append(ends, need[d].To-held[d].From)
		}
	}
	n := &onnxpb.NodeProto{Name: proto.String(out), OpType: proto.String("Slice"), Input: []string{name}, Output: []string{out}}
	if b.model.source.Opset() < 10 {
		n.Attribute = []*onnxpb.AttributeProto{intsAttribute("starts", starts), intsAttribute("ends", ends), intsAttribute("axes", axes)}
	} else {
		n.Input = append(n.Input, b.constant(starts), b.constant(ends), b.constant(axes))
	}
	b.graph.Node = append(b.graph.Node, n)
	return out
}

// constant adds a vector of integers and returns its name.
func (b *builder) constant(values []int64) string {
	name := "integers " + strings.Trim(fmt.Sprint(values), "[]")
	if !b.have[name] {
		b.have[name] = true
		b.graph.Initializer = append(b.graph.Initializer, &onnxpb.TensorProto{
			Name: proto.String(name), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{int64(len(values))}, Int64Data: values,
		})
	}
	return name
}

func intsAttribute(name string, values []int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: values}
}

func setAttribute(n *onnxpb.NodeProto, a *onnxpb.AttributeProto) {
	dropAttribute(n, a.GetName())
	n.Attribute = append(n.Attribute, a)
}

func dropAttribute(n *onnxpb.NodeProto, name string) {
	n.Attribute = slices.DeleteFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetName() == name })
}

// fit changes the attributes that depend on the sizes.
func (b *builder) fit(n *onnxpb.NodeProto, o *operator, s step) error {
	v := b.model.values[o.Node.GetOutput()[0]]
	if s.out.equal(whole(v.shape)) {
		return nil
	}
	switch n.GetOpType() {
	case "Conv":
		fitWindows(n, o, s)
		if l := o.links[0][1]; l.Kind == Block {
			groups := (s.out[1].To+l.Out-1)/l.Out - s.out[1].From/l.Out
			setAttribute(n, &onnxpb.AttributeProto{Name: proto.String("group"), Type: onnxpb.AttributeProto_INT.Enum(), I: &groups})
		}
	case "MaxPool", "AveragePool", "LpPool":
		fitWindows(n, o, s)
	case "Reshape":
		return b.fitReshape(n, o, s)
	}
	return nil
}

// fitWindows writes the pads of a region instead of the node's own.
func fitWindows(n *onnxpb.NodeProto, o *operator, s step) {
	var before, after []int64
	for d, l := range o.links[0][2:] {
		b, a := l.Window.pads(s.out[d+2], s.in[0][d+2])
		before, after = append(before, b), append(after, a)
	}
	setAttribute(n, intsAttribute("pads", append(before, after...)))
	dropAttribute(n, "auto_pad")
}

// fitReshape writes the shape of a region. One dimension that grows with the batch is at the
// input's place or left open.
func (b *builder) fitReshape(n *onnxpb.NodeProto, o *operator, s step) error {
	v := b.model.values[o.Node.GetOutput()[0]]
	in := b.model.values[o.Node.GetInput()[0]]
	target, open := s.out.Shape(), 0
	for d := range target {
		switch {
		case !v.rows(d):
		case d < len(in.shape) && o.links[0][d] == Link{Kind: Same, Dim: d}:
			target[d] = 0
		default:
			target[d] = -1
			open++
		}
	}
	if open > 1 {
		return fmt.Errorf("a part of %q (Reshape) would have %d dimensions that grow with the batch", o.Name, open)
	}
	n.Input[1] = b.constant(target)
	dropAttribute(n, "allowzero")
	return nil
}
