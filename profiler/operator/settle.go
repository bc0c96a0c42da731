package operator

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// The sizes of dynamic dimensions other than the batch, for images (rank four) and for
// other inputs. [model.Model.SampleInputs] uses the same.
const (
	assumedChannels = 3
	assumedSide     = 224
	assumedLength   = 128
)

// settle gives dynamic dimensions other than the batch a size. It returns one sentence
// for each.
func settle(m *model.Model) (*model.Model, []string, error) {
	var assumed []string
	old := m.Proto().GetGraph()
	inputs := make([]*onnxpb.ValueInfoProto, len(old.GetInput()))
	for i, in := range old.GetInput() {
		inputs[i] = in
		dims := in.GetType().GetTensorType().GetShape().GetDim()
		for j, d := range dims {
			if j == 0 || d.GetDimValue() > 0 || initialised(old, in.GetName()) {
				continue
			}
			if inputs[i] == in {
				inputs[i] = proto.CloneOf(in)
			}
			size := int64(assumedLength)
			if len(dims) == 4 {
				size = map[bool]int64{true: assumedChannels, false: assumedSide}[j == 1]
			}
			inputs[i].GetType().GetTensorType().GetShape().Dim[j].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}
			assumed = append(assumed, fmt.Sprintf("dimension %d of input %q is dynamic and assumed to be %d", j, in.GetName(), size))
		}
	}
	if assumed == nil {
		return m, nil, nil
	}
	settled, err := model.FromProto(&onnxpb.ModelProto{
		IrVersion: m.Proto().IrVersion, OpsetImport: m.Proto().GetOpsetImport(), Functions: m.Proto().GetFunctions(),
		Graph: &onnxpb.GraphProto{
			Node: old.GetNode(), Name: old.Name, Initializer: old.GetInitializer(), SparseInitializer: old.GetSparseInitializer(),
			Input: inputs, Output: old.GetOutput(), ValueInfo: old.GetValueInfo(),
		},
	})
	return settled, assumed, err
}

// initialised reports whether an input is a weight. Before IR version 4 models list
// weights among their inputs.
func initialised(g *onnxpb.GraphProto, name string) bool {
	for _, t := range g.GetInitializer() {
		if t.GetName() == name {
			return true
		}
	}
	return false
}
