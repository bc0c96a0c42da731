package model

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// imageChannels is the number of an image's channels that nobody gives.
const imageChannels = 3

// CheckShapes returns an error if the shapes contradict the model's inputs: a name that it has
// not, another rank, or another size than a fixed one. The sizes of free dimensions, the batch
// among them, are not checked. The error is a sentence that names the input.
func (m *Model) CheckShapes(shapes tensor.Shapes) error {
	_, err := shapes.Fill(m.Inputs())
	return err
}

// ImageShapes are the shapes that images of a form give the model: those of its only input of
// rank four, if a side of that is free. They are nil for any other model.
func (m *Model) ImageShapes(form ImageForm) tensor.Shapes {
	var found tensor.Shapes
	for _, in := range m.Inputs() {
		if len(in.Shape) != 4 {
			continue
		}
		if found != nil {
			return nil
		}
		s := slices.Clone(in.Shape)
		height, width := 2, 3
		if s[3] == 1 || s[3] == imageChannels { // The channels are last.
			height, width = 1, 2
		}
		channels := 6 - height - width
		if s[height] >= 0 && s[width] >= 0 {
			return nil
		}
		for i, size := range map[int]int64{0: 1, channels: imageChannels, height: int64(form.Height), width: int64(form.Width)} {
			if s[i] < 0 {
				s[i] = size
			}
		}
		found = tensor.Shapes{in.Name: s}
	}
	return found
}

// Sized returns the model with a size for each free dimension of its inputs other than the batch:
// that of shapes, otherwise the likeliest guess ([Model.GuessShapes]), which knows the sizes that shapes
// give to dimensions of the same name. assumed has one sentence for each dimension whose size shapes
// do not say so. The error is that of CheckShapes.
func (m *Model) Sized(shapes tensor.Shapes) (sized *Model, assumed []string, err error) {
	if err := m.CheckShapes(shapes); err != nil {
		return nil, nil, err
	}
	g := m.guess(shapes)
	guess := g.likeliest(shapes)
	old := m.proto.GetGraph()
	inputs := slices.Clone(old.GetInput())
	changed := false
	for at, in := range m.inputs() {
		dims := in.GetType().GetTensorType().GetShape().GetDim()
		sizes := make([]int64, len(dims))
		for i, d := range dims {
			if i == 0 || d.GetDimValue() > 0 {
				continue
			}
			sizes[i] = guess[in.GetName()][i]
			if shapes[in.GetName()] == nil && g.given[g.key(at, i)] == 0 {
				assumed = append(assumed, fmt.Sprintf("dimension %d of input %q is dynamic and assumed to be %d", i, in.GetName(), sizes[i]))
			}
			changed = true
		}
		inputs[slices.Index(inputs, in)] = withSizes(in, sizes)
	}
	if !changed {
		return m, nil, nil
	}
	p := &onnxpb.ModelProto{
		IrVersion: m.proto.IrVersion, OpsetImport: m.proto.GetOpsetImport(), Functions: m.proto.GetFunctions(),
		Graph: &onnxpb.GraphProto{
			Node: old.GetNode(), Name: old.Name, Initializer: old.GetInitializer(), SparseInitializer: old.GetSparseInitializer(),
			Input: inputs, Output: old.GetOutput(), ValueInfo: old.GetValueInfo(),
		},
	}
	return &Model{proto: p, file: m.file, generate: m.generate}, assumed, nil
}

// withSizes returns an input with the sizes that are not 0, or the input itself if all are.
func withSizes(in *onnxpb.ValueInfoProto, sizes []int64) *onnxpb.ValueInfoProto {
	if !slices.ContainsFunc(sizes, func(n int64) bool { return n > 0 }) {
		return in
	}
	in = proto.CloneOf(in)
	for i, n := range sizes {
		if n > 0 {
			in.GetType().GetTensorType().GetShape().Dim[i].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}
		}
	}
	return in
}
