package zoo

import (
	"math"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// efficient is Tan and Le's network: inverted residual blocks with squeeze and excitation,
// scaled in depth and width from their B0.
type efficient struct {
	// side is the image's, in pixels.
	side int64
	// wide and deep multiply B0's channels and numbers of blocks.
	wide, deep float64
}

// b0 are the stages of EfficientNet-B0.
var b0 = []struct{ expand, kernel, stride, out, blocks int64 }{
	{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
	{6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1},
}

// channels are B0's channels, scaled, as a multiple of eight that is not more than a tenth
// below.
func (e efficient) channels(of int64) int64 {
	scaled := float64(of) * e.wide
	c := max(8, int64(scaled+4)/8*8)
	if float64(c) < 0.9*scaled {
		c += 8
	}
	return c
}

func (e efficient) build(n *network) {
	in := e.channels(32)
	x := n.convNormSwish(n.input("image", onnxpb.TensorProto_FLOAT, 3, e.side, e.side), 3, in, 3, 2)
	all := 0.0
	for _, s := range b0 {
		all += math.Ceil(e.deep * float64(s.blocks))
	}
	share := math.Sqrt(4 / all)
	for _, s := range b0 {
		out := e.channels(s.out)
		for block := range int64(math.Ceil(e.deep * float64(s.blocks))) {
			stride := s.stride
			if block > 0 {
				stride = 1
			}
			x = n.inverted(x, in, in*s.expand, out, s.kernel, stride, share)
			in = out
		}
	}
	last := e.channels(1280)
	x = n.convNormSwish(x, in, last, 1, 1)
	n.output("classes", n.softmax(n.averageHead(x, last, 1000)), 1000)
}

// inverted is an inverted residual block: wider within than at its ends. Where the shapes
// allow it, share of it is added to its input.
func (n *network) inverted(x string, in, inner, out, kernel, stride int64, share float64) string {
	y := x
	if inner != in {
		y = n.convNormSwish(y, in, inner, 1, 1)
	}
	y = n.swish(n.batchNorm(n.grouped(y, inner, inner, kernel, stride, kernel/2, inner, false), inner, 1))
	y = n.conv2d(n.excite(y, inner, max(1, in/4)), inner, out, 1, 1)
	if in != out || stride != 1 {
		return n.batchNorm(y, out, 1)
	}
	return n.op("Add", []string{x, n.batchNorm(y, out, share)})
}

// excite multiplies each channel by a weight that two 1×1 convolutions calculate from the
// means of all channels.
func (n *network) excite(x string, channels, squeezed int64) string {
	s := n.op("GlobalAveragePool", []string{x})
	s = n.swish(n.grouped(s, channels, squeezed, 1, 1, 0, 1, true))
	s = n.op("Sigmoid", []string{n.grouped(s, squeezed, channels, 1, 1, 0, 1, true)})
	return n.op("Mul", []string{x, s})
}
