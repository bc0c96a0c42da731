package model

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// blockedDomain is the domain of operators on images in blocks of channels.
const blockedDomain = "com.microsoft.nchwc"

func isBlocked(node *onnxpb.NodeProto, kind string) bool {
	return node.GetOpType() == kind && node.GetDomain() == blockedDomain
}

// blockedChannels takes the channels of each convolution's input, padding
// included, from the convolution's weights. No operator gives the width of a
// block.
func blockedChannels(nodes []*onnxpb.NodeProto, weights map[string]*onnxpb.TensorProto) map[string]int64 {
	var channels map[string]int64
	for _, n := range nodes {
		if !isBlocked(n, "Conv") || len(n.GetInput()) < 2 {
			continue
		}
		dims := weights[n.GetInput()[1]].GetDims()
		if len(dims) != 4 {
			continue
		}
		if channels == nil {
			channels = make(map[string]int64)
		}
		name := n.GetInput()[0]
		if n, in := groups(n), dims[1]; n > 0 && in > 0 && in < math.MaxInt64/n {
			channels[name] = n * in
		}
	}
	return channels
}

func groups(n *onnxpb.NodeProto) int64 {
	for _, a := range n.GetAttribute() {
		if a.GetName() == "group" {
			return a.GetI()
		}
	}
	return 1
}

// pad sets the channels of a ReorderInput's output to those that the convolution
// after it reads. Before any other operator there is no padding.
func (w *walk) pad(node *onnxpb.NodeProto, in shape.Value, outputs []shape.Value) {
	if len(outputs) == 0 || len(outputs[0].Shape) != 4 || len(in.Shape) != 4 {
		return
	}
	at := 1
	if slices.ContainsFunc(node.GetAttribute(), func(a *onnxpb.AttributeProto) bool {
		return a.GetName() == "channels_last" && a.GetI() != 0
	}) {
		at = 3
	}
	outputs[0].Shape[1] = in.Shape[at]
	if n, ok := w.channels[node.GetOutput()[0]]; ok && n >= in.Shape[at] && n-in.Shape[at] < shape.LargestBlock {
		outputs[0].Shape[1] = n
	}
}
