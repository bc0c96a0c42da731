package graphs

import (
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// dense multiplies the last axis of x, which has in elements, by random weights.
func (b *builder) dense(x string, in, out int64) string {
	y := b.op("MatMul", []string{x, b.weights(in, in, out)})
	if b.chance(0.7) {
		y = b.op("Add", []string{y, b.weights(1, out)})
	}
	return y
}

func (b *builder) activation(x string) string {
	switch operator := pick(b, "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Erf", "HardSigmoid", "Elu", "Softplus", ""); operator {
	case "":
		return b.op("Mul", []string{x, b.op("Sigmoid", []string{x})})
	default:
		return b.op(operator, []string{x})
	}
}

// mlp is what exports of plain networks look like.
func mlp(b *builder) {
	n, in := b.batch(), b.width(1000)
	x := b.float("x", n, in)
	for layer := range 1 + b.rng.IntN(4) {
		out := b.width(1000)
		if layer%2 == 0 {
			x = b.op("Gemm", []string{x, b.weights(in, out, in), b.weights(1, out)}, integer("transB", 1))
		} else {
			x = b.dense(x, in, out)
		}
		x, in = b.activation(x), out
	}
	if b.chance(0.3) {
		x = b.op("Softmax", []string{x}, integer("axis", -1))
	}
	b.output("y", x, tensor.FP32, n, in)
}

// tokens works along a free axis, as models of text do.
func tokens(b *builder) {
	n, w := b.batch(), b.width(300)
	b.sizes = [][]int64{{16}, {7}, {33}, {1}}
	var x string
	if b.chance(0.6) {
		vocabulary := 10 + b.width(900)
		ids := b.input(Input{Name: "ids", Type: pick(b, tensor.Int64, tensor.Int32), Shape: []int64{n, Free(0)}, High: float64(vocabulary - 1)})
		x = b.op("Gather", []string{b.weights(1, vocabulary, w), ids})
	} else {
		x = b.float("x", n, Free(0), w)
	}
	for range 1 + b.rng.IntN(2) {
		x = b.op("LayerNormalization", []string{x, b.constant(tensor.FP32, []int64{w}, ones(w)...)}, integer("axis", -1))
		if b.chance(0.5) {
			scores := b.op("MatMul", []string{b.dense(x, w, w), b.op("Transpose", []string{x}, list("perm", 0, 2, 1))})
			x = b.op("MatMul", []string{b.op("Softmax", []string{scores}, integer("axis", -1)), x})
		} else {
			out := b.width(300)
			x, w = b.activation(b.dense(x, w, out)), out
		}
	}
	if b.chance(0.5) {
		b.output("y", b.op("ReduceMean", []string{x}, list("axes", 1), integer("keepdims", 0)), tensor.FP32, n, w)
		return
	}
	b.output("y", x, tensor.FP32, n, Free(0), w)
}

func ones(n int64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

// image convolves pictures of fixed or free sizes, with odd numbers of channels.
func image(b *builder) {
	n, c := b.batch(), pick(b, int64(1), 3, 3, 5, 17)
	h, w := 8+b.width(40), 8+b.width(40)
	if b.chance(0.4) {
		h, w = Free(0), Free(1)
		b.sizes = [][]int64{{32, 32}, {24, 40}, {17, 19}}
	}
	x := b.float("image", n, c, h, w)
	for range 1 + b.rng.IntN(3) {
		out, side := b.width(60), pick(b, int64(1), 3, 5)
		pad := side / 2
		x = b.op("Conv", []string{x, b.weights(c*side*side, out, c, side, side), b.weights(1, out)},
			list("kernel_shape", side, side), list("pads", pad, pad, pad, pad), list("strides", 1+int64(b.rng.IntN(2)), 1))
		x, c = b.activation(x), out
	}
	if b.chance(0.3) {
		x = b.op(pick(b, "MaxPool", "AveragePool"), []string{x}, list("kernel_shape", 2, 2), list("strides", 2, 2))
	}
	x = b.op("Flatten", []string{b.op("GlobalAveragePool", []string{x})})
	out := b.width(1000)
	b.output("y", b.dense(x, c, out), tensor.FP32, n, out)
}

// elementwise computes with tensors of ranks 1 to 5 and of all types.
func elementwise(b *builder) {
	of := pick(b, tensor.FP32, tensor.FP32, tensor.FP64, tensor.FP16, tensor.Int8, tensor.Uint8, tensor.Int16, tensor.Uint16,
		tensor.Int32, tensor.Int64, tensor.Uint32, tensor.Uint64, tensor.Bool)
	shape := []int64{b.batch()}
	for range b.rng.IntN(5) {
		shape = append(shape, b.width(12))
	}
	in := Input{Name: "x", Type: of, Shape: shape, High: 100}
	switch of {
	case tensor.Bool:
		in.High = 1
	case tensor.FP32, tensor.FP64, tensor.FP16:
		in.High = 0
	}
	x := b.input(in)
	switch of {
	case tensor.Bool:
		x = b.op(pick(b, "Xor", "And", "Or"), []string{b.op("Not", []string{x}), b.constant(of, nil, float64(b.rng.IntN(2)))})
	case tensor.FP32, tensor.FP64, tensor.FP16, tensor.Int32, tensor.Int64:
		for range 1 + b.rng.IntN(3) {
			x = b.op(pick(b, "Add", "Mul", "Sub"), []string{x, b.constant(of, nil, float64(1+b.rng.IntN(5)))})
		}
		if b.chance(0.3) {
			x = b.op("Max", []string{x, b.constant(of, nil, 1)})
		}
	default:
		wide := b.op("Add", []string{b.cast(x, tensor.Int64), b.constant(tensor.Int64, nil, 3)})
		x = b.cast(wide, of)
	}
	b.output("y", x, of, shape...)
}

// branch has an If whose condition is an input, a property of all rows together, or of the
// request's size.
func branch(b *builder) {
	n, w := b.batch(), b.width(1000)
	x := b.float("x", n, w)
	var condition string
	switch b.rng.IntN(3) {
	case 0:
		condition = b.input(Input{Name: "flag", Type: tensor.Bool, High: 1})
	case 1:
		condition = b.op("Greater", []string{b.op("ReduceSum", []string{x}, integer("keepdims", 0)), b.constant(tensor.FP32, nil, 0)})
	default:
		size := b.op("Gather", []string{b.op("Shape", []string{x}), b.constant(tensor.Int64, nil, 0)})
		condition = b.op("Greater", []string{size, b.constant(tensor.Int64, nil, 2)})
	}
	shape := []int64{n, w}
	side := func(name, operator string, by float64) *onnxpb.GraphProto {
		g := &onnxpb.GraphProto{Name: &name, Output: []*onnxpb.ValueInfoProto{valueInfo(name+"_y", tensor.FP32, shape)}}
		c, of := name+"_c", tensorProto(tensor.FP32, nil, by)
		of.Name = &c
		g.Initializer = append(g.Initializer, of)
		g.Node = append(g.Node, node(operator, []string{x, c}, []string{name + "_y"}))
		return g
	}
	y := b.op("If", []string{condition}, subgraph("then_branch", side("then", "Mul", 3)), subgraph("else_branch", side("else", "Sub", 2)))
	out := b.width(100)
	b.output("y", b.dense(y, w, out), tensor.FP32, n, out)
}

// loop repeats a step, a number of times that the model or the request says.
func loop(b *builder) {
	n, w := b.batch(), b.width(500)
	x := b.float("x", n, w)
	trips := b.constant(tensor.Int64, nil, float64(1+b.rng.IntN(5)))
	if b.chance(0.4) {
		trips = b.input(Input{Name: "trips", Type: tensor.Int64, Low: 1, High: 4})
	}
	shape := []int64{n, w}
	name, factor := "body", "factor"
	by := tensorProto(tensor.FP32, nil, 0.5)
	by.Name = &factor
	body := &onnxpb.GraphProto{Name: &name, Initializer: []*onnxpb.TensorProto{by},
		Input: []*onnxpb.ValueInfoProto{
			valueInfo("i", tensor.Int64, nil), valueInfo("go", tensor.Bool, nil), valueInfo("v", tensor.FP32, shape),
		},
		Node: []*onnxpb.NodeProto{
			node("Identity", []string{"go"}, []string{"go_on"}), node("Mul", []string{"v", factor}, []string{"half"}),
			node("Add", []string{"half", x}, []string{"next"}),
		},
		Output: []*onnxpb.ValueInfoProto{valueInfo("go_on", tensor.Bool, nil), valueInfo("next", tensor.FP32, shape)},
	}
	y := b.op("Loop", []string{trips, b.constant(tensor.Bool, nil, 1), x}, subgraph("body", body))
	b.output("y", y, tensor.FP32, n, w)
}
