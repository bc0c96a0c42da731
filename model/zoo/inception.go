package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

// inception is Szegedy et al.'s third Inception network on 299×299 images, without the
// auxiliary classifier, which only training needs. Its modules are branches side by side.
func inception(n *network) { modules{n}.build() }

// modules are the modules of Inception-v3.
type modules struct{ *network }

func (n modules) build() {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, 299, 299)
	x = n.valid(x, 3, 32, 3, 2)
	x = n.valid(x, 32, 32, 3, 1)
	x = n.maxPool(n.convNormRelu(x, 32, 64, 3, 1), 3, 2, 0)
	x = n.valid(n.valid(x, 64, 80, 1, 1), 80, 192, 3, 1)
	x = n.maxPool(x, 3, 2, 0)
	in := int64(192)
	for _, pooled := range []int64{32, 64, 64} {
		x = n.inceptionA(x, in, pooled)
		in = 224 + pooled
	}
	x = n.inceptionB(x, in)
	for _, width := range []int64{128, 160, 160, 192} {
		x = n.inceptionC(x, 768, width)
	}
	x = n.inceptionD(x, 768)
	for _, in := range []int64{1280, 2048} {
		x = n.inceptionE(x, in)
	}
	n.output("classes", n.softmax(n.averageHead(x, 2048, 1000)), 1000)
}

// valid is convNormRelu without padding.
func (n modules) valid(x string, in, out, kernel, stride int64) string {
	return n.relu(n.batchNorm(n.grouped(x, in, out, kernel, stride, 0, 1, false), out, 1))
}

// flat is convNormRelu with a kernel of one row, or of one column.
func (n modules) flat(x string, in, out, high, wide int64) string {
	w := window{kernel: [2]int64{high, wide}, stride: 1, pad: [2]int64{high / 2, wide / 2}}
	return n.relu(n.batchNorm(n.convolution(x, in, out, w, 1, false), out, 1))
}

// pooled is the branch of each module that averages before a 1×1 convolution.
func (n modules) pooled(x string, in, out int64) string {
	x = n.op("AveragePool", []string{x}, attrInts("kernel_shape", 3, 3), attrInts("strides", 1, 1),
		attrInts("pads", 1, 1, 1, 1), attrInt("count_include_pad", 1))
	return n.convNormRelu(x, in, out, 1, 1)
}

func (n modules) inceptionA(x string, in, pooled int64) string {
	double := n.convNormRelu(n.convNormRelu(x, in, 64, 1, 1), 64, 96, 3, 1)
	return n.concat(1,
		n.convNormRelu(x, in, 64, 1, 1),
		n.convNormRelu(n.convNormRelu(x, in, 48, 1, 1), 48, 64, 5, 1),
		n.convNormRelu(double, 96, 96, 3, 1),
		n.pooled(x, in, pooled))
}

// inceptionB halves the sides: 768 channels.
func (n modules) inceptionB(x string, in int64) string {
	double := n.convNormRelu(n.convNormRelu(x, in, 64, 1, 1), 64, 96, 3, 1)
	return n.concat(1, n.valid(x, in, 384, 3, 2), n.valid(double, 96, 96, 3, 2), n.maxPool(x, 3, 2, 0))
}

// inceptionC has 7×7 convolutions as pairs of 1×7 and 7×1 ones.
func (n modules) inceptionC(x string, in, width int64) string {
	once := n.flat(n.convNormRelu(x, in, width, 1, 1), width, width, 1, 7)
	twice := n.flat(n.convNormRelu(x, in, width, 1, 1), width, width, 7, 1)
	twice = n.flat(n.flat(twice, width, width, 1, 7), width, width, 7, 1)
	return n.concat(1,
		n.convNormRelu(x, in, 192, 1, 1),
		n.flat(once, width, 192, 7, 1),
		n.flat(twice, width, 192, 1, 7),
		n.pooled(x, in, 192))
}

// inceptionD halves the sides: 1280 channels.
func (n modules) inceptionD(x string, in int64) string {
	seven := n.flat(n.flat(n.convNormRelu(x, in, 192, 1, 1), 192, 192, 1, 7), 192, 192, 7, 1)
	return n.concat(1,
		n.valid(n.convNormRelu(x, in, 192, 1, 1), 192, 320, 3, 2),
		n.valid(seven, 192, 192, 3, 2),
		n.maxPool(x, 3, 2, 0))
}

// inceptionE has branches that end in a 1×3 and a 3×1 convolution side by side.
func (n modules) inceptionE(x string, in int64) string {
	three := n.convNormRelu(x, in, 384, 1, 1)
	double := n.convNormRelu(n.convNormRelu(x, in, 448, 1, 1), 448, 384, 3, 1)
	return n.concat(1,
		n.convNormRelu(x, in, 320, 1, 1),
		n.flat(three, 384, 384, 1, 3), n.flat(three, 384, 384, 3, 1),
		n.flat(double, 384, 384, 1, 3), n.flat(double, 384, 384, 3, 1),
		n.pooled(x, in, 192))
}
