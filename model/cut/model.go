package cut

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// reference is the batch size whose shapes regions are of. It is a prime, so that no other
// dimension is equal to it by chance.
const reference = 97

// Model is a model's graph, ready to be cut. It is immutable.
type Model struct {
	source  *model.Model
	nodes   []operator
	values  map[string]*value
	inputs  []string
	outputs []string
	layers  []Layer
	// opaque says why the model can only be whole, "" if it can be cut.
	opaque string
}

// operator is one node.
type operator struct {
	model.Operator
	links Links
	// heavy is false for what only prepares the model's inputs. Every part that needs its
	// result computes it again.
	heavy bool
}

// value is a tensor of the graph, computed, sent or constant.
type value struct {
	name string
	elem tensor.Type
	// shape is at the reference batch, further at the batch after it; nil if the rank is
	// unknown.
	shape, further []int64
	// contents are the elements of a small tensor of integers, nil if unknown.
	contents []int64
	// weight is the initialiser, nil for any other tensor.
	weight *onnxpb.TensorProto
	// from is the index of the operator that computes it, -1 if none does. readers read it.
	from    int
	readers []int
}

// rows reports whether a dimension grows with the batch.
func (v *value) rows(d int) bool { return v.shape[d] != v.further[d] }

// known reports whether all dimensions are known.
func (v *value) known() bool { return v.shape != nil && !slices.Contains(v.shape, -1) }

// rowsAt is the dimension of the batch, -1 unless it is the only dimension that grows with
// the batch, by one for each row.
func (v *value) rowsAt() int {
	at := -1
	for d := range v.shape {
		if !v.rows(d) {
			continue
		}
		if at >= 0 || v.shape[d] != reference || v.further[d] != reference+1 {
			return -1
		}
		at = d
	}
	return at
}

// at is a region's shape at a batch size.
func (v *value) at(r Region, batch int) []int64 {
	out := r.Shape()
	for d := range out {
		if v.rows(d) {
			out[d] = v.shape[d] + (v.further[d]-v.shape[d])*int64(batch-reference)
		}
	}
	return out
}

// bytes is a region's size at a batch size. A weight whose elements have no type is whole.
func (v *value) bytes(r Region, batch int) int64 {
	if v.weight != nil && v.elem.Size() == 0 {
		return model.WeightBytes(v.weight)
	}
	n := int64(max(v.elem.Size(), 1))
	for _, d := range v.at(r, batch) {
		n *= d
	}
	return n
}

// New analyses a model. Its weights may be absent: only their types and dimensions count.
// The error is that of [model.Model.Graph], for a model that cannot be batched or whose
// graph is damaged.
//
// A model with control flow, functions of its own or sparse weights is one layer, which can
// only be whole: operators then read tensors that their nodes do not name.
func New(m *model.Model) (*Model, error) {
	g, err := m.Graph(reference)
	if err != nil {
		return nil, fmt.Errorf("the model cannot run at any batch size: %w", err)
	}
	further, err := m.Graph(reference + 1)
	if err != nil {
		return nil, fmt.Errorf("the model cannot run at any batch size: %w", err)
	}
	c := &Model{source: m, values: make(map[string]*value)}
	switch p := m.Proto(); {
	case len(g.ControlFlow) > 0:
		c.opaque = fmt.Sprintf("it has control flow (%s)", g.ControlFlow[0])
	case len(p.GetFunctions()) > 0:
		c.opaque = "it has functions of its own"
	case len(p.GetGraph().GetSparseInitializer()) > 0:
		c.opaque = "it has sparse weights"
	}
	for _, t := range m.Proto().GetGraph().GetInitializer() {
		v := shape.OfTensor(t)
		c.values[t.GetName()] = &value{name: t.GetName(), elem: model.ElementType(t), shape: v.Shape, further: v.Shape, contents: v.Ints, weight: t, from: -1}
	}
	for i, v := range g.Inputs {
		c.inputs = append(c.inputs, v.Name)
		c.add(v, further.Inputs[i], -1)
	}
	for i, o := range g.Operators {
		for k, v := range o.Outputs {
			c.add(v, further.Operators[i].Outputs[k], i)
		}
		for _, name := range o.Node.GetInput() {
			if v := c.values[name]; v != nil && !slices.Contains(v.readers, i) {
				v.readers = append(v.readers, i)
			}
		}
		c.nodes = append(c.nodes, operator{Operator: o, links: linksOf(c.node(o.Node, m.Opset()))})
	}
	for _, v := range g.Outputs {
		c.outputs = append(c.outputs, v.Name)
	}
	c.weigh()
	c.layers = c.findLayers(1)
	return c, nil
}

// Returns reports whether a tensor is an output of the model.
func (m *Model) Returns(name string) bool { return slices.Contains(m.outputs, name) }

func (m *Model) add(v, further model.Value, from int) {
	added := &value{name: v.Name, elem: v.Type, shape: v.Shape, further: further.Shape, contents: v.Contents, from: from}
	if len(added.shape) != len(added.further) { // Its rank depends on the batch.
		added.shape, added.further = nil, nil
	}
	m.values[v.Name] = added
}

// node is an operator as the rules see it.
func (m *Model) node(p *onnxpb.NodeProto, opset int64) *node {
	n := &node{proto: p, opset: opset}
	for _, name := range p.GetInput() {
		v := m.values[name]
		if v == nil {
			v = &value{}
		}
		n.in, n.contents = append(n.in, v.shape), append(n.contents, v.contents)
		n.untyped = n.untyped || v.weight != nil && v.elem.Size() == 0
	}
	if len(p.GetOutput()) > 0 {
		if v := m.values[p.GetOutput()[0]]; v != nil && v.known() {
			n.out = v.shape
		}
	}
	return n
}
