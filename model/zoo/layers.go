package zoo

// conv2d is a convolution with a square kernel, a stride and "same" padding for
// odd kernels. It has no bias, because a batchNorm follows.
func (n *network) conv2d(x string, in, out, kernel, stride int64) string {
	return n.grouped(x, in, out, kernel, stride, kernel/2, 1, false)
}

// grouped is conv2d with explicit padding, groups and bias. As many groups as
// input channels make it depthwise.
func (n *network) grouped(x string, in, out, kernel, stride, pad, groups int64, bias bool) string {
	name := n.next("Conv")
	inputs := []string{x, n.weight(name+".weight", 2, in/groups*kernel*kernel, out, in/groups, kernel, kernel)}
	if bias {
		inputs = append(inputs, n.around(name+".bias", 0, 0.05, out))
	}
	return n.op("Conv", inputs,
		attrInts("kernel_shape", kernel, kernel), attrInts("strides", stride, stride),
		attrInts("pads", pad, pad, pad, pad), attrInt("group", groups))
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
