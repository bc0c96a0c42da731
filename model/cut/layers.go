package cut

import (
	"maps"
	"slices"
)

// Layer is a sequence of operators after which one tensor holds all that the rest of the
// model needs of the operators so far (Gillis §III-C). The branches of a block are therefore
// one layer (Fig. 5), and element-wise operators belong to the layer before.
//
// Operators that only prepare the model's inputs, such as a mask's cast, belong to no layer:
// they are computed where they are read, from the inputs, which are sent again.
type Layer struct {
	// Name is the name of the layer's operator that computes most.
	Name string
	// Operators are indices, ascending.
	Operators []int
	// Out are the tensors that the layers after it read and that no operator after it
	// computes: one, or several after [Model.Separate]; none for the last layer. An earlier
	// layer may have computed some of several.
	Out []string
}

// Layers are the model's layers in order. They must not be changed.
func (m *Model) Layers() []Layer { return m.layers }

// preparing are the operators that move data or calculate with few numbers, as exporters
// write them for masks, positions and shapes, beside the element-wise ones.
var preparing = []string{
	"Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "OneHot", "Pad", "Range", "ReduceMax", "ReduceMin",
	"ReduceSum", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze",
}

// maxPrepared is the largest weight in bytes that an operator reads and is still light.
const maxPrepared = 64 << 10

// weigh finds the heavy operators: those that are not light themselves, and all that read a
// result of these. If there are none, all are heavy.
func (m *Model) weigh() {
	any := false
	for i := range m.nodes {
		o := &m.nodes[i]
		kind := o.Node.GetOpType()
		light := o.Node.GetDomain() == "" && (slices.Contains(preparing, kind) || slices.Contains(elementwise, kind)) &&
			o.ParameterBytes <= maxPrepared
		for _, v := range o.Inputs {
			if in := m.values[v.Name]; in != nil && in.from >= 0 && m.nodes[in.from].heavy {
				light = false
			}
		}
		o.heavy = !light
		any = any || o.heavy
	}
	for i := range m.nodes {
		m.nodes[i].heavy = m.nodes[i].heavy || !any
	}
}

// Separate is the same model with a layer wherever up to that many tensors together hold all
// that the rest of the model needs: a finer cut through residual blocks and detectors, whose
// branches are alive side by side. A group's outputs are then those that its own operators
// compute, and it is sent each tensor that it reads.
func (m *Model) Separate(tensors int) *Model {
	finer := *m
	finer.layers = finer.findLayers(tensors)
	return &finer
}

// findLayers divides the heavy operators where at most that many tensors of theirs are alive,
// and then joins what belongs together.
//
// Only a tensor with one row for each of the batch can go from layer to layer.
func (m *Model) findLayers(tensors int) []Layer {
	var layers []Layer
	var now Layer
	last := m.lastReaders()
	alive := map[string]bool{}
	for i := range m.nodes {
		if !m.nodes[i].heavy {
			continue
		}
		now.Operators = append(now.Operators, i)
		for _, v := range m.nodes[i].Outputs {
			if last[v.Name] > i {
				alive[v.Name] = true
			}
		}
		for name := range alive {
			if last[name] <= i {
				delete(alive, name)
			}
		}
		if len(alive) > 0 && len(alive) <= tensors && m.opaque == "" && m.byRow(alive) {
			now.Out = slices.Sorted(maps.Keys(alive))
			layers = append(layers, now)
			now = Layer{}
		}
	}
	if len(now.Operators) > 0 {
		layers = append(layers, now)
	}
	layers = m.join(layers)
	for i := range layers {
		layers[i].Name = m.name(layers[i])
	}
	if len(layers) > 0 {
		layers[len(layers)-1].Out = nil
	}
	return layers
}

// byRow reports whether all tensors have a known size and one row for each of the batch.
func (m *Model) byRow(names map[string]bool) bool {
	for name := range names {
		if v := m.values[name]; !v.known() || v.rowsAt() < 0 {
			return false
		}
	}
	return true
}

// lastReaders are the last operator that reads each tensor.
func (m *Model) lastReaders() map[string]int {
	last := make(map[string]int)
	for name, v := range m.values {
		if len(v.readers) > 0 {
			last[name] = slices.Max(v.readers)
		}
	}
	return last
}

// shapes are the operators that give data another shape. They belong to the layer after
// them: only that layer says how it may be cut.
var shapes = []string{"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}

// join adds layers of element-wise operators to the layer before, and layers that only give
// another shape to the layer after.
func (m *Model) join(layers []Layer) []Layer {
	var joined []Layer
	held := []int(nil) // of layers that wait for the next
	for k, l := range layers {
		l.Operators = append(held, l.Operators...)
		held = nil
		last := k+1 == len(layers)
		switch {
		case !last && m.all(l, shapes):
			held = l.Operators
		case len(joined) > 0 && (m.all(l, pointwise) || last && m.all(l, slices.Concat(shapes, pointwise))):
			before := &joined[len(joined)-1]
			before.Operators, before.Out = append(before.Operators, l.Operators...), l.Out
		default:
			joined = append(joined, l)
		}
	}
	return joined
}

// pointwise are the operators that belong to the layer before. Engines fuse a normalisation
// with the sum before it, and a fused operator rounds differently.
var pointwise = append([]string{"BatchNormalization", "LayerNormalization", "QuantizeLinear", "DequantizeLinear"}, elementwise...)

func (m *Model) all(l Layer, kinds []string) bool {
	return !slices.ContainsFunc(l.Operators, func(i int) bool {
		return m.nodes[i].Node.GetDomain() != "" || !slices.Contains(kinds, m.nodes[i].Node.GetOpType())
	})
}

func (m *Model) name(l Layer) string {
	most := slices.MaxFunc(l.Operators, func(a, b int) int { return int(min(max(m.nodes[a].FLOPs-m.nodes[b].FLOPs, -1), 1)) })
	return m.nodes[most].Name
}
