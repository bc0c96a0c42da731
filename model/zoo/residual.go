package zoo

import (
	"math"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// residuals is He et al.'s network of residual blocks in four stages. Zagoruyko and
// Komodakis' wide network has more channels in every block.
type residuals struct {
	// side is the image's, in pixels.
	side int64
	// blocks is the number of blocks in each stage.
	blocks [4]int
	// widen multiplies the channels of the blocks. The first convolution keeps its 64.
	widen int64
	// bottleneck: a block is convolutions of 1×1, 3×3 and 1×1, and four times as many
	// channels leave it. Otherwise it is two of 3×3.
	bottleneck bool
	// early: the stride of a bottleneck block is in its first convolution, as in the
	// original paper, and not in the 3×3 one, as in most networks since.
	early bool
}

// share is about what a block adds to its input. Activations would grow from block to
// block in a deeper network, and the last softmax would be a single one.
func (r residuals) share() float64 {
	all := 0
	for _, blocks := range r.blocks {
		all += blocks
	}
	return min(0.5, math.Sqrt(4/float64(all)))
}

func (r residuals) build(n *network) {
	x := n.input("image", onnxpb.TensorProto_FLOAT, 3, r.side, r.side)
	x = n.maxPool(n.convNormRelu(x, 3, 64, 7, 2), 3, 2, 1)
	in := int64(64)
	for stage, blocks := range r.blocks {
		width := 64 * r.widen << stage
		for block := range blocks {
			stride := int64(1)
			if stage > 0 && block == 0 {
				stride = 2
			}
			x, in = r.block(n, x, in, width, stride)
		}
	}
	n.output("classes", n.softmax(n.averageHead(x, in, 1000)), 1000)
}

// block returns a block's output and its number of channels.
func (r residuals) block(n *network, x string, in, width, stride int64) (y string, out int64) {
	if !r.bottleneck {
		y := n.convNormRelu(x, in, width, 3, stride)
		return n.residual(x, n.conv2d(y, width, width, 3, 1), in, width, stride, r.share()), width
	}
	first, second := int64(1), stride
	if r.early {
		first, second = stride, 1
	}
	y = n.convNormRelu(x, in, width, 1, first)
	y = n.convNormRelu(y, width, width, 3, second)
	return n.residual(x, n.conv2d(y, width, 4*width, 1, 1), in, 4*width, stride, r.share()), 4 * width
}

// residual adds a block's output y to its input x. It projects x if the shapes
// differ. y's scale is share.
func (n *network) residual(x, y string, in, out, stride int64, share float64) string {
	y = n.batchNorm(y, out, share)
	if in != out || stride != 1 {
		x = n.batchNorm(n.conv2d(x, in, out, 1, stride), out, 0.7)
	}
	return n.relu(n.op("Add", []string{x, y}))
}
