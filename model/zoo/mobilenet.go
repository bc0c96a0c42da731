package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

// separable are the output channels and strides of MobileNet V1's thirteen
// depthwise separable blocks.
var separable = []struct{ out, stride int64 }{
	{64, 1}, {128, 2}, {128, 1}, {256, 2}, {256, 1}, {512, 2},
	{512, 1}, {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1},
}

// mobileBody is MobileNet V1 (Howard et al.) without its classifier. SSD and YAMNet
// are built on it too. It returns the output of every block.
func (n *network) mobileBody(x string, channels int64) []string {
	x = n.convNormRelu(x, channels, 32, 3, 2)
	in := int64(32)
	var out []string
	for _, block := range separable {
		x = n.relu(n.batchNorm(n.grouped(x, in, in, 3, block.stride, 1, in, false), in, 1))
		x = n.convNormRelu(x, in, block.out, 1, 1)
		in = block.out
		out = append(out, x)
	}
	return out
}

func mobilenet(n *network) {
	x := n.mobileBody(n.input("image", onnxpb.TensorProto_FLOAT, 3, 224, 224), 3)
	n.output("classes", n.softmax(n.averageHead(x[len(x)-1], 1024, 1000)), 1000)
}

// ssd detects objects on six feature maps of a MobileNet, at 1917 anchors. The
// caller suppresses overlapping boxes, because the number that remains depends on
// the image.
func ssd(n *network) {
	const classes = 91
	blocks := n.mobileBody(n.input("image", onnxpb.TensorProto_FLOAT, 3, 300, 300), 3)
	maps := []string{blocks[10], blocks[12]}
	channels := []int64{512, 1024}
	for _, extra := range []struct{ middle, out int64 }{{256, 512}, {128, 256}, {128, 256}, {64, 128}} {
		last := len(maps) - 1
		x := n.convNormRelu(maps[last], channels[last], extra.middle, 1, 1)
		maps = append(maps, n.convNormRelu(x, extra.middle, extra.out, 3, 2))
		channels = append(channels, extra.out)
	}
	var boxes, scores []string
	for i, x := range maps {
		anchors := int64(6)
		if i == 0 {
			anchors = 3
		}
		boxes = append(boxes, n.perAnchor(x, channels[i], anchors, 4, 1))
		scores = append(scores, n.perAnchor(x, channels[i], anchors, classes, 1))
	}
	n.output("boxes", n.op("Concat", boxes, attrInt("axis", 1)), 1917, 4)
	n.output("scores", n.op("Sigmoid", []string{n.op("Concat", scores, attrInt("axis", 1))}), 1917, classes)
}

// perAnchor predicts the given number of values for each anchor of a feature map.
func (n *network) perAnchor(x string, in, anchors, values, kernel int64) string {
	x = n.grouped(x, in, anchors*values, kernel, 1, kernel/2, 1, true)
	x = n.op("Transpose", []string{x}, attrInts("perm", 0, 2, 3, 1))
	return n.op("Reshape", []string{x, n.integers(0, -1, values)})
}
