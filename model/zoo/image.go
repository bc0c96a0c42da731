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

// vgg is Simonyan and Zisserman's network: five stages of 3×3 convolutions, each stage
// followed by pooling, and dense layers.
type vgg struct {
	// side is the image's, a multiple of 32.
	side int64
	// layers are the convolutions of each stage.
	layers [5]int
	// dense are the widths of the dense layers before the classifier.
	dense []int64
}

// wide are the dense layers of all networks in the VGG paper. They hold most weights.
var wide = []int64{4096, 4096}

func (v vgg) build(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, v.side, v.side)
	in := int64(3)
	for stage, out := range []int64{64, 128, 256, 512, 512} {
		for range v.layers[stage] {
			x = n.relu(n.grouped(x, in, out, 3, 1, 1, 1, true))
			in = out
		}
		x = n.maxPool(x, 2, 2, 0)
	}
	x, in = n.flatten(x), in*(v.side/32)*(v.side/32)
	for _, width := range v.dense {
		x = n.relu(n.dense(x, in, width, 2))
		in = width
	}
	n.output("classes", n.softmax(n.dense(x, in, 1000, 1)), 1000)
}
