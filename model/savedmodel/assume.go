package savedmodel

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// What [model.Model.SampleInputs] makes of dynamic dimensions beside the batch:
// those of an image, which has its channels last here, and others.
const (
	assumedChannels = 3
	assumedSide     = 224
	assumedLength   = 128
)

// Assume is the model with inputs of fixed sizes but for the batch: the sizes
// that [model.Model.SampleInputs] takes, 128, or 224 in images. It says of each
// dynamic dimension what it was taken to be, one sentence each.
func (m *Model) Assume() (settled *Model, assumed []string) {
	fixed := *m
	fixed.inputs = nil
	for _, p := range m.inputs {
		p.shape = proto.CloneOf(p.shape)
		dims := p.shape.GetDim()
		for i, d := range dims {
			if i == 0 || d.GetSize() >= 0 {
				continue
			}
			d.Size = assumedSize(dims, i)
			assumed = append(assumed, fmt.Sprintf("dimension %d of input %q, which is dynamic, is taken to be %d", i, p.key, d.Size))
		}
		fixed.inputs = append(fixed.inputs, p)
	}
	return &fixed, assumed
}

func assumedSize(dims []*pb.TensorShapeProto_Dim, i int) int64 {
	switch {
	case len(dims) != 4:
		return assumedLength
	case i == 3:
		return assumedChannels
	}
	return assumedSide
}
