package adapt

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// free makes the first dimension of every input dynamic, where the file fixes it to 1. It is
// nil if an input's first dimension is not 1. Exporters then also fix it in the shapes that
// Reshape reads: a leading 1 there becomes "as many as are left", or "as the input" if another
// dimension is that already. Whether the model still computes the same is for a run to show.
func (n *Natural) free() *model.Model {
	for _, in := range n.Inputs {
		if len(in.Shape) == 0 || in.Shape[0] != 1 {
			return nil
		}
	}
	p := proto.CloneOf(shell(n.Model.Proto()))
	p.Graph.Initializer = slices.Clone(n.Model.Proto().GetGraph().GetInitializer())
	p.Graph.ValueInfo = nil // It repeats the fixed size.
	for _, v := range inputsOf(p) {
		freeFirst(v)
	}
	for _, v := range p.Graph.Output {
		if t := v.GetType().GetTensorType(); t != nil {
			t.Shape = nil
		}
	}
	freeReshapes(p.Graph)
	return n.source.With(p)
}

// freeReshapes frees the leading 1 in the constant shapes that Reshape reads.
func freeReshapes(g *onnxpb.GraphProto) {
	constants := make(map[string]*onnxpb.TensorProto)
	for _, t := range g.GetInitializer() {
		constants[t.GetName()] = t
	}
	for _, node := range g.GetNode() {
		if node.GetOpType() == "Constant" && len(node.GetOutput()) == 1 {
			for _, a := range node.GetAttribute() {
				if a.GetName() == "value" && a.GetT() != nil {
					constants[node.GetOutput()[0]] = a.GetT()
				}
			}
		}
	}
	for _, node := range slices.Clone(g.GetNode()) {
		if node.GetOpType() != "Reshape" || len(node.GetInput()) != 2 {
			continue
		}
		shape := int64s(constants[node.GetInput()[1]])
		if len(shape) < 2 || shape[0] != 1 {
			continue
		}
		shape = slices.Clone(shape)
		if shape[0] = -1; slices.Contains(shape[1:], -1) {
			shape[0] = 0
		}
		name := node.GetInput()[1] + "@freed:" + node.GetOutput()[0]
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{
			Name: proto.String(name), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{int64(len(shape))}, Int64Data: shape,
		})
		node.Input[1] = name
	}
}

// int64s are the elements of a small constant, nil if it is none or not in the model's message.
func int64s(t *onnxpb.TensorProto) []int64 {
	switch {
	case t == nil || t.GetDataType() != int32(onnxpb.TensorProto_INT64) || t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL:
		return nil
	case len(t.GetInt64Data()) > 0:
		return t.GetInt64Data()
	}
	var out []int64
	for raw := t.GetRawData(); len(raw) >= 8; raw = raw[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(raw)))
	}
	return out
}
