package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

// mnist is a network for handwritten digits in the form of Simard et al.: two
// strided 5×5 convolutions and a wide dense layer, which holds nearly all weights.
func mnist(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 1, 28, 28)
	x = n.relu(n.grouped(x, 1, 16, 5, 2, 2, 1, true))
	x = n.relu(n.grouped(x, 16, 32, 5, 2, 2, 1, true))
	x = n.relu(n.dense(n.flatten(x), 7*7*32, 2048, 2))
	n.output("digits", n.softmax(n.dense(x, 2048, 10, 1)), 10)
}

// resnet50 is He et al.'s network of bottleneck blocks.
func resnet50(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, 224, 224)
	x = n.maxPool(n.convNormRelu(x, 3, 64, 7, 2), 3, 2, 1)
	in := int64(64)
	for stage, blocks := range []int{3, 4, 6, 3} {
		middle := int64(64) << stage
		for block := range blocks {
			stride := int64(1)
			if stage > 0 && block == 0 {
				stride = 2
			}
			x = n.bottleneck(x, in, middle, stride)
			in = 4 * middle
		}
	}
	n.output("classes", n.softmax(n.averageHead(x, in, 1000)), 1000)
}

func (n *network) bottleneck(x string, in, middle, stride int64) string {
	y := n.convNormRelu(x, in, middle, 1, stride)
	y = n.convNormRelu(y, middle, middle, 3, 1)
	return n.residual(x, n.conv2d(y, middle, 4*middle, 1, 1), in, 4*middle, stride)
}

// residual adds a block's output y to its input x. It projects x if the shapes
// differ. The halved scale keeps the sum from growing.
func (n *network) residual(x, y string, in, out, stride int64) string {
	y = n.batchNorm(y, out, 0.5)
	if in != out || stride != 1 {
		x = n.batchNorm(n.conv2d(x, in, out, 1, stride), out, 0.7)
	}
	return n.relu(n.op("Add", []string{x, y}))
}

// resnet20 has twenty layers: a first convolution, nine blocks of two, and the
// classifier.
func resnet20(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, 192, 192)
	x = n.maxPool(n.convNormRelu(x, 3, 64, 7, 2), 3, 2, 1)
	in := int64(64)
	for stage, blocks := range []int{2, 2, 4, 1} {
		out := int64(64) << stage
		for block := range blocks {
			stride := int64(1)
			if stage > 0 && block == 0 {
				stride = 2
			}
			y := n.convNormRelu(x, in, out, 3, stride)
			x = n.residual(x, n.conv2d(y, out, out, 3, 1), in, out, stride)
			in = out
		}
	}
	n.output("classes", n.softmax(n.averageHead(x, in, 1000)), 1000)
}

// vgg16 has VGG-16's thirteen convolutions and a smaller dense layer.
func vgg16(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, 136, 136)
	in := int64(3)
	for _, stage := range []struct{ layers, out int64 }{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}} {
		for range stage.layers {
			x = n.relu(n.grouped(x, in, stage.out, 3, 1, 1, 1, true))
			in = stage.out
		}
		x = n.maxPool(x, 2, 2, 0)
	}
	x = n.relu(n.dense(n.flatten(x), 4*4*512, 384, 2))
	n.output("classes", n.softmax(n.dense(x, 384, 1000, 1)), 1000)
}
