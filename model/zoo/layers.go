package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

// conv2d is a convolution with a square kernel, a stride and "same" padding for
// odd kernels. It has no bias, because a batchNorm follows.
func (n *network) conv2d(x string, in, out, kernel, stride int64) string {
	return n.grouped(x, in, out, kernel, stride, kernel/2, 1, false)
}

// grouped is conv2d with explicit padding, groups and bias. As many groups as
// input channels make it depthwise.
func (n *network) grouped(x string, in, out, kernel, stride, pad, groups int64, bias bool) string {
	return n.convolution(x, in, out, window{kernel: [2]int64{kernel, kernel}, stride: stride, pad: [2]int64{pad, pad}}, groups, bias)
}

// window is a convolution's, height before width. A dilation of 0 is 1.
type window struct {
	kernel, pad      [2]int64
	stride, dilation int64
}

// convolution is a convolution with any window.
func (n *network) convolution(x string, in, out int64, w window, groups int64, bias bool) string {
	name := n.next("Conv")
	high, wide := w.kernel[0], w.kernel[1]
	inputs := []string{x, n.weight(name+".weight", 2, in/groups*high*wide, out, in/groups, high, wide)}
	if bias {
		inputs = append(inputs, n.around(name+".bias", 0, 0.05, out))
	}
	attributes := []*onnxpb.AttributeProto{
		attrInts("kernel_shape", high, wide), attrInts("strides", w.stride, w.stride),
		attrInts("pads", w.pad[0], w.pad[1], w.pad[0], w.pad[1]), attrInt("group", groups),
	}
	if w.dilation > 1 {
		attributes = append(attributes, attrInts("dilations", w.dilation, w.dilation))
	}
	return n.op("Conv", inputs, attributes...)
}

// batchNorm normalises channels and multiplies them by about scale.
func (n *network) batchNorm(x string, channels int64, scale float64) string {
	name := n.next("BatchNormalization")
	return n.op("BatchNormalization", []string{x,
		n.around(name+".scale", scale, 0.1*scale, channels),
		n.around(name+".bias", 0, 0.1, channels),
		n.around(name+".mean", 0, 0.1, channels),
		n.around(name+".var", 1, 0.2, channels),
	}, attrFloat("epsilon", 1e-5))
}

func (n *network) relu(x string) string { return n.op("Relu", []string{x}) }

// swish is x times its sigmoid, also called SiLU.
func (n *network) swish(x string) string {
	return n.op("Mul", []string{x, n.op("Sigmoid", []string{x})})
}

// convNormSwish is the block of newer image networks.
func (n *network) convNormSwish(x string, in, out, kernel, stride int64) string {
	return n.swish(n.batchNorm(n.conv2d(x, in, out, kernel, stride), out, 1))
}

func (n *network) concat(axis int64, parts ...string) string {
	return n.op("Concat", parts, attrInt("axis", axis))
}

// convNormRelu is the block of most image networks.
func (n *network) convNormRelu(x string, in, out, kernel, stride int64) string {
	return n.relu(n.batchNorm(n.conv2d(x, in, out, kernel, stride), out, 1))
}

func (n *network) maxPool(x string, kernel, stride, pad int64) string {
	return n.op("MaxPool", []string{x}, attrInts("kernel_shape", kernel, kernel),
		attrInts("strides", stride, stride), attrInts("pads", pad, pad, pad, pad))
}

// dense is a fully connected layer, as a Gemm. [network.weight] explains gain.
func (n *network) dense(x string, in, out int64, gain float64) string {
	name := n.next("Gemm")
	return n.op("Gemm", []string{x,
		n.weight(name+".weight", gain, in, in, out),
		n.around(name+".bias", 0, 0.05, out)})
}

func (n *network) flatten(x string) string {
	return n.op("Flatten", []string{x}, attrInt("axis", 1))
}

// averageHead turns a feature map into class scores: global average, dense.
func (n *network) averageHead(x string, in, classes int64) string {
	return n.dense(n.flatten(n.op("GlobalAveragePool", []string{x})), in, classes, 1)
}

func (n *network) softmax(x string) string {
	return n.op("Softmax", []string{x}, attrInt("axis", -1))
}

// embedding is a table of rows×width, looked up by ids.
func (n *network) embedding(ids string, rows, width int64) string {
	name := n.next("Gather")
	return n.op("Gather", []string{n.around(name+".table", 0, 1, rows, width), ids}, attrInt("axis", 0))
}
