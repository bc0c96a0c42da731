package cut

import (
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// node is one operator as the rules see it: at one batch size, with the shapes of all its
// inputs, nil for one that is left out, and of its first output.
type node struct {
	proto *onnxpb.NodeProto
	opset int64
	in    [][]int64
	out   []int64
	// untyped is true if a weight's elements have no type: less than a byte each, for example.
	untyped bool
	// contents are the elements of small inputs of integers, as far as they are known.
	contents [][]int64
}

func (n *node) attribute(name string) *onnxpb.AttributeProto {
	for _, a := range n.proto.GetAttribute() {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

func (n *node) int(name string, otherwise int64) int64 {
	if a := n.attribute(name); a != nil {
		return a.GetI()
	}
	return otherwise
}

// ints are the integers of an attribute, or of input i in newer versions of the operator.
// known is false if an input gives them whose elements are unknown.
func (n *node) ints(name string, i int) (values []int64, known bool) {
	if a := n.attribute(name); a != nil {
		return a.GetInts(), true
	}
	if i < 0 || i >= len(n.in) || n.in[i] == nil {
		return nil, true
	}
	return n.contents[i], n.contents[i] != nil
}

// axis is an axis from 0; ok is false if it is none of the rank's.
func axis(a int64, rank int) (int, bool) {
	if a < 0 {
		a += int64(rank)
	}
	return int(a), a >= 0 && a < int64(rank)
}

// rule returns an operator's links; ok is false if the operator must be computed whole.
type rule func(n *node) (l Links, ok bool)

// rules are the operators that can be computed in part. The fused operators that ONNX
// Runtime makes are not among them: a model is cut before it is optimised.
var rules = map[string]rule{
	"Conv": convolution, "MatMul": product, "Gemm": gemm,
	"MaxPool": pool, "AveragePool": pool, "LpPool": pool,
	"GlobalAveragePool": globalPool, "GlobalMaxPool": globalPool,
	"BatchNormalization": perChannel(false), "InstanceNormalization": perChannel(true),
	"Softmax": alongAxis, "LogSoftmax": alongAxis, "Hardmax": alongAxis, "LpNormalization": alongAxis,
	"LayerNormalization": layerNormalisation, "LRN": acrossChannels,
	"Transpose": transpose, "Reshape": reshape, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
	"Concat": concat, "Slice": slice, "Pad": pad, "Gather": gather,
	"QuantizeLinear": quantisation, "DequantizeLinear": quantisation,
}

func init() {
	for _, kind := range elementwise {
		rules[kind] = broadcast
	}
	for _, kind := range []string{"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
		"ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"} {
		rules[kind] = reduction
	}
}

// elementwise are the operators each of whose elements needs the element of each input at
// the same place. Inputs are broadcast.
var elementwise = []string{
	"Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div",
	"Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish",
	"Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not",
	"Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
	"Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
}

// linksOf are an operator's links. An operator without a rule needs everything.
func linksOf(n *node) Links {
	if d := n.proto.GetDomain(); d != "" && d != "ai.onnx" {
		return everything(n.in)
	}
	find, ok := rules[n.proto.GetOpType()]
	if !ok || n.out == nil {
		return everything(n.in)
	}
	if n.untyped {
		return everything(n.in)
	}
	for i, s := range n.in {
		given := i < len(n.proto.GetInput()) && n.proto.GetInput()[i] != ""
		if given && s == nil || slices.ContainsFunc(s, func(d int64) bool { return d < 0 }) {
			return everything(n.in)
		}
	}
	if l, ok := find(n); ok {
		return l
	}
	return everything(n.in)
}

// broadcast links each dimension of an input to the output's at the same distance from the
// last, unless the input has one position there.
func broadcast(n *node) (Links, bool) {
	l := everything(n.in)
	for i := range l {
		l.align(i, n.in[i], n.out)
	}
	return l, true
}

// align links input i as an operand of a broadcast.
func (l Links) align(i int, in, out []int64) {
	for d := range in {
		if at := d + len(out) - len(in); at >= 0 && in[d] == out[at] {
			l[i][d] = Link{Kind: Same, Dim: at}
		}
	}
}

// same links dimension d of input i to dimension at of the output.
func (l Links) same(i, d, at int) { l[i][d] = Link{Kind: Same, Dim: at} }

func globalPool(n *node) (Links, bool) {
	l := everything(n.in)
	l.same(0, 0, 0)
	l.same(0, 1, 1)
	return l, len(n.in[0]) > 2
}

// perChannel links the first input at every place, or only by row and channel if the
// operator normalises over the other dimensions; the further inputs have a number per
// channel.
func perChannel(normalises bool) rule {
	return func(n *node) (Links, bool) {
		l := everything(n.in)
		for d := range n.in[0] {
			if d < 2 || !normalises {
				l.same(0, d, d)
			}
		}
		for i := 1; i < len(n.in); i++ {
			if len(n.in[i]) != 1 {
				return nil, false
			}
			l.same(i, 0, 1)
		}
		return l, len(n.in[0]) > 1 && n.int("training_mode", 0) == 0
	}
}

// alongAxis needs everything along its axis. Before version 13 of the operators, it also
// needed everything along all dimensions after it.
func alongAxis(n *node) (Links, bool) {
	flattens := n.opset < 13 && n.proto.GetOpType() != "LpNormalization"
	otherwise := int64(-1)
	if flattens {
		otherwise = 1
	}
	at, ok := axis(n.int("axis", otherwise), len(n.in[0]))
	l := everything(n.in)
	for d := range n.in[0] {
		if d < at || d > at && !flattens {
			l.same(0, d, d)
		}
	}
	return l, ok
}

func layerNormalisation(n *node) (Links, bool) {
	at, ok := axis(n.int("axis", -1), len(n.in[0]))
	l := everything(n.in)
	for d := range min(at, len(n.in[0])) {
		l.same(0, d, d)
	}
	return l, ok
}

func acrossChannels(n *node) (Links, bool) {
	l := everything(n.in)
	for d := range n.in[0] {
		if d != 1 {
			l.same(0, d, d)
		}
	}
	return l, true
}

func reduction(n *node) (Links, bool) {
	values, known := n.ints("axes", 1)
	rank := len(n.in[0])
	if !known || len(values) == 0 {
		return nil, false
	}
	reduced := make([]bool, rank)
	for _, a := range values {
		at, ok := axis(a, rank)
		if !ok {
			return nil, false
		}
		reduced[at] = true
	}
	l, out := everything(n.in), 0
	for d := range n.in[0] {
		if !reduced[d] {
			l.same(0, d, out)
		}
		if !reduced[d] || n.int("keepdims", 1) != 0 {
			out++
		}
	}
	return l, out == len(n.out)
}

// quantisation links the scale and the zero point, which are one number or one for each
// position along an axis.
func quantisation(n *node) (Links, bool) {
	at, ok := axis(n.int("axis", 1), len(n.in[0]))
	l := everything(n.in)
	for d := range n.in[0] {
		l.same(0, d, d)
	}
	for i := 1; i < len(n.in); i++ {
		switch {
		case len(n.in[i]) == 0 || slices.Equal(n.in[i], []int64{1}):
		case !ok || len(n.in[i]) != 1 || n.in[i][0] != n.in[0][at] || n.int("block_size", 0) != 0:
			return nil, false
		default:
			l.same(i, 0, at)
		}
	}
	return l, true
}
