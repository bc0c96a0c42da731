package measuring

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// batchFirst returns a model whose inputs and outputs have the batch as their first dimension, as
// engines ask for. Recurrent operators have it second: [steps, batch, width]. A Reshape on each moves no
// data on the GPU. It mixes the numbers of the rows up, which changes no time.
func batchFirst(m *model.Model) (*model.Model, error) {
	all := proto.CloneOf(m.Proto())
	g := all.GetGraph()
	var before, after []*onnxpb.NodeProto
	for _, v := range g.Input {
		if own, shape, ok := rowsFirst(v); ok {
			before = append(before, reshape(g, own, v.GetName(), shape))
			v.Name = &own
		}
	}
	for _, v := range g.Output {
		if own, _, ok := rowsFirst(v); ok {
			shape := []int64{-1}
			for _, d := range v.GetType().GetTensorType().GetShape().GetDim()[1:] {
				shape = append(shape, d.GetDimValue())
			}
			after = append(after, reshape(g, v.GetName(), own, shape))
			v.Name = &own
		}
	}
	if len(before)+len(after) == 0 {
		return m, nil
	}
	g.Node = slices.Concat(before, g.Node, after)
	return model.FromProto(all)
}

// rowsFirst moves a value's batch dimension to the front. It returns a name for the value with this
// shape, and its shape before, with -1 for the batch. ok is false if that is not needed, or if not
// exactly one dimension depends on the batch.
func rowsFirst(v *onnxpb.ValueInfoProto) (name string, before []int64, ok bool) {
	s := v.GetType().GetTensorType().GetShape()
	at := -1
	for i, d := range s.GetDim() {
		if d.GetDimValue() > 0 {
			before = append(before, d.GetDimValue())
			continue
		}
		if at >= 0 {
			return "", nil, false
		}
		at, before = i, append(before, -1)
	}
	if at < 1 {
		return "", nil, false
	}
	batch := s.Dim[at]
	s.Dim = slices.Insert(slices.Delete(s.Dim, at, at+1), 0, batch)
	return v.GetName() + "_rows", before, true
}

// reshape makes a node with its shape as a weight of the graph.
func reshape(g *onnxpb.GraphProto, from, to string, shape []int64) *onnxpb.NodeProto {
	name := to + "_shape"
	g.Initializer = append(g.Initializer, &onnxpb.TensorProto{
		Name: &name, DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{int64(len(shape))}, Int64Data: shape,
	})
	return &onnxpb.NodeProto{OpType: proto.String("Reshape"), Name: proto.String("reshape " + to), Input: []string{from, name}, Output: []string{to}}
}

// rowsOf returns inputs in the form of [batchFirst]'s model for batches of rows.
func rowsOf(m *model.Model, rows int, inputs []tensor.Tensor) []tensor.Tensor {
	inputs = slices.Clone(inputs)
	for i, in := range m.Inputs() {
		if i >= len(inputs) {
			break
		}
		shape := slices.Clone(in.Shape)
		shape[0] = int64(rows)
		if len(shape) == len(inputs[i].Shape) && !slices.Contains(shape, -1) && !slices.Equal(shape, inputs[i].Shape) {
			inputs[i].Shape, inputs[i].Name = shape, in.Name
		}
	}
	return inputs
}
