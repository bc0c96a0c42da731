package graphs

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// elsewhere has its batch on another axis than the first, in inputs, outputs or both.
func elsewhere(b *builder) {
	n, w, layers := int64(Rows), b.width(300), 1+b.width(4)
	switch b.rng.IntN(3) {
	case 0: // The state of a recurrent network.
		x, s := b.float("x", n, w), b.float("state", layers, n, w)
		b.output("y", b.op("Add", []string{x, b.op("ReduceMean", []string{s}, list("axes", 0), integer("keepdims", 0))}), tensor.FP32, n, w)
		b.output("state_out", b.op("Add", []string{x, b.op("Mul", []string{s, b.constant(tensor.FP32, nil, 0.5)})}), tensor.FP32, layers, n, w)
	case 1:
		x, out := b.float("x", w, n), b.width(100)
		b.output("y", b.op("MatMul", []string{b.weights(w, out, w), x}), tensor.FP32, out, n)
	default:
		x := b.float("x", n, w, layers)
		b.output("y", b.op("Transpose", []string{x}, list("perm", 1, 0, 2)), tensor.FP32, w, n, layers)
	}
}

// recurrent is an LSTM or a GRU, which have time first and the batch on the second axis.
func recurrent(b *builder) {
	n, in, hidden := b.batch(), b.width(60), b.width(80)
	b.sizes = [][]int64{{8}, {1}, {19}}
	x := b.float("x", n, Free(0), in)
	operator, gates := "LSTM", int64(4)
	if b.chance(0.5) {
		operator, gates = "GRU", 3
	}
	inputs := []string{b.op("Transpose", []string{x}, list("perm", 1, 0, 2)), b.weights(in, 1, gates*hidden, in), b.weights(hidden, 1, gates*hidden, hidden)}
	if b.chance(0.5) {
		inputs = append(inputs, b.weights(4, 1, 2*gates*hidden), "", b.float("h", 1, n, hidden))
	}
	out := b.ops("", operator, 2, inputs, integer("hidden_size", hidden))
	y := b.op("Squeeze", []string{out[0], b.integers(1)})
	b.output("y", b.op("Transpose", []string{y}, list("perm", 1, 0, 2)), tensor.FP32, n, Free(0), hidden)
	b.output("h_out", out[1], tensor.FP32, 1, n, hidden)
}

// unbatched has no batch axis at all.
func unbatched(b *builder) {
	w, v := b.width(1000), b.width(100)
	switch b.rng.IntN(4) {
	case 0: // A vector and a scalar.
		x, k := b.float("x", w), b.input(Input{Name: "k", Type: tensor.FP32})
		b.output("y", b.op("Mul", []string{x, k}), tensor.FP32, w)
	case 1:
		x, z := b.float("x", v, w), b.float("z", w, 1+v/2)
		b.output("y", b.op("MatMul", []string{x, z}), tensor.FP32, v, 1+v/2)
	case 2: // The answer is a scalar.
		x := b.float("x", w)
		b.output("y", b.op("ReduceSum", []string{x}, integer("keepdims", 0)), tensor.FP32)
	default: // Only scalars.
		k, m := b.input(Input{Name: "k", Type: tensor.Int64, High: 1000}), b.input(Input{Name: "m", Type: tensor.Int64, Low: 1, High: 9})
		b.output("y", b.op("Div", []string{k, m}), tensor.Int64)
		b.output("z", b.op("Mul", []string{k, m}), tensor.Int64)
	}
}

// quantised has int8 weights. Dynamic quantisation makes one scale for all rows.
func quantised(b *builder) {
	n, in := b.batch(), b.width(500)
	x := b.float("x", n, in)
	// After float noise, a second fixed step could round to the other side: static models have
	// one.
	static, layers := b.chance(0.25), 1+b.rng.IntN(2)
	if static {
		layers = 1
	}
	for range layers {
		out := b.width(300)
		values := make([]float64, in*out)
		for i := range values {
			values[i] = float64(b.rng.IntN(255) - 127)
		}
		w := b.constant(tensor.Int8, []int64{in, out}, values...)
		scale := b.constant(tensor.FP32, nil, 0.01)
		if static {
			step, zero := b.constant(tensor.FP32, nil, 0.05), b.constant(tensor.Uint8, nil, 128)
			q := b.op("QuantizeLinear", []string{x, step, zero})
			float := b.op("DequantizeLinear", []string{q, step, zero})
			x = b.op("MatMul", []string{float, b.op("DequantizeLinear", []string{w, scale})})
		} else {
			q := b.ops("", "DynamicQuantizeLinear", 3, []string{x})
			product := b.cast(b.op("MatMulInteger", []string{q[0], w, q[2]}), tensor.FP32)
			x = b.op("Mul", []string{product, b.op("Mul", []string{q[1], scale})})
		}
		x, in = b.op("Relu", []string{b.op("Add", []string{x, b.weights(1, out)})}), out
	}
	b.output("y", x, tensor.FP32, n, in)
}

// across lets the rows of a request see each other.
func across(b *builder) {
	n, w := int64(Rows), b.width(400)
	x := b.float("x", n, w)
	axis := func(operator string) string {
		return b.op(operator, []string{x}, list("axes", 0), integer("keepdims", 1))
	}
	switch b.rng.IntN(7) {
	case 0:
		x = b.op("Sub", []string{x, axis("ReduceMean")})
	case 1:
		x = b.op("Softmax", []string{x}, integer("axis", 0))
	case 2:
		x = b.op("CumSum", []string{x, b.constant(tensor.Int64, nil, 0)})
	case 3: // Attention across rows.
		scores := b.op("MatMul", []string{x, b.op("Transpose", []string{x}, list("perm", 1, 0))})
		x = b.op("MatMul", []string{b.op("Softmax", []string{scores}, integer("axis", -1)), x})
	case 4: // The largest number of all rows.
		most := b.op("ReduceMax", []string{b.op("Abs", []string{x})}, integer("keepdims", 0))
		x = b.op("Div", []string{x, b.op("Add", []string{most, b.constant(tensor.FP32, nil, 1)})})
	case 5: // An answer of one row, whatever the request's.
		b.output("y", axis(pick(b, "ReduceMax", "ReduceMean", "ReduceL2")), tensor.FP32, 1, w)
		return
	default:
		b.output("y", b.op("ArgMax", []string{x}, integer("axis", 0), integer("keepdims", 0)), tensor.Int64, w)
		return
	}
	b.output("y", x, tensor.FP32, n, w)
}

// words are the strings of requests. Some are in no list of a model.
var words = []string{"cat", "dog", "ចាប", "", "fish", "a longer word with spaces", "ünïcode", "bird"}

// stringsIn takes strings, and may give some.
func stringsIn(b *builder) {
	n, w := b.batch(), b.width(20)
	s := b.input(Input{Name: "s", Type: tensor.Bytes, Shape: []int64{n, w}, Words: words})
	known := words[:2+b.rng.IntN(len(words)-2)]
	values := make([]int64, len(known))
	for i := range values {
		values[i] = int64(i + 1)
	}
	encode := func(attributes ...*onnxpb.AttributeProto) string {
		return b.ops("ai.onnx.ml", "LabelEncoder", 1, []string{s}, append(attributes, texts("keys_strings", known...))...)[0]
	}
	switch b.rng.IntN(3) {
	case 0:
		b.output("y", encode(list("values_int64s", values...), integer("default_int64", -1)), tensor.Int64, n, w)
	case 1:
		reversed := slices.Clone(known)
		slices.Reverse(reversed)
		b.output("y", encode(texts("values_strings", reversed...), text("default_string", "none")), tensor.Bytes, n, w)
	default: // A table of words and numbers.
		floats := make([]float32, len(known))
		for i := range floats {
			floats[i] = float32(i) / 7
		}
		v := b.width(30)
		x := b.float("x", n, v)
		all := b.op("Concat", []string{encode(numbers("values_floats", floats...), number("default_float", -1)), x}, integer("axis", 1))
		out := b.width(50)
		b.output("y", b.dense(all, w+v, out), tensor.FP32, n, out)
		b.output("s_out", s, tensor.Bytes, n, w)
	}
}

// dataRows answers with as many rows as the data asks for.
func dataRows(b *builder) {
	switch w := b.width(100); b.rng.IntN(4) {
	case 0:
		x := b.input(Input{Name: "x", Type: tensor.Int64, Shape: []int64{b.batch(), w}, High: 1})
		b.output("y", b.op("Transpose", []string{b.op("NonZero", []string{x})}, list("perm", 1, 0)), tensor.Int64, unknown, 2)
	case 1:
		x, keep := b.float("x", b.batch(), w), b.input(Input{Name: "keep", Type: tensor.Bool, Shape: []int64{w}, High: 1})
		b.output("y", b.op("Compress", []string{x, keep}, integer("axis", 1)), tensor.FP32, unknown, unknown)
	case 2:
		x := b.input(Input{Name: "x", Type: tensor.Int64, Shape: []int64{b.batch(), w}, High: 9})
		b.output("y", b.op("Unique", []string{x}), tensor.Int64, unknown)
	default: // What detectors end with.
		boxes := b.input(Input{Name: "boxes", Type: tensor.FP32, Shape: []int64{1, w, 4}, High: 10})
		scores := b.input(Input{Name: "scores", Type: tensor.FP32, Shape: []int64{1, 3, w}, High: 1})
		y := b.op("NonMaxSuppression", []string{boxes, scores, b.integers(5), b.constant(tensor.FP32, []int64{1}, 0.5), b.constant(tensor.FP32, []int64{1}, 0.3)})
		b.output("y", y, tensor.Int64, unknown, 3)
	}
}

// mixed has several inputs of different types and several outputs.
func mixed(b *builder) {
	n := b.batch()
	var parts []string
	total := int64(0)
	for i := range 2 + b.rng.IntN(3) {
		of, w := pick(b, tensor.FP32, tensor.FP64, tensor.Int64, tensor.Int32, tensor.Uint8, tensor.Bool), b.width(200)
		in := Input{Name: fmt.Sprintf("in%d", i), Type: of, Shape: []int64{n, w}, High: 9}
		switch of {
		case tensor.Bool:
			in.High = 1
		case tensor.FP32, tensor.FP64:
			in.High = 0
		}
		parts = append(parts, b.cast(b.input(in), tensor.FP32))
		total += w
	}
	x := b.op("Concat", parts, integer("axis", 1))
	out := 1 + b.width(200)
	y := b.activation(b.dense(x, total, out))
	b.output("scores", y, tensor.FP32, n, out)
	b.output("best", b.op("ArgMax", []string{y}, integer("axis", 1), integer("keepdims", int64(b.rng.IntN(2)))), tensor.Int64)
	b.graph.Output[len(b.graph.Output)-1].Type.GetTensorType().Shape = nil
	if b.chance(0.5) {
		top := b.ops("", "TopK", 2, []string{y, b.integers(1 + b.width(float64(out-1)))}, integer("axis", 1))
		b.output("top", top[0], tensor.FP32, n, unknown)
		b.output("top_at", top[1], tensor.Int64, n, unknown)
	}
}

// labels is a classifier as scikit-learn's converter writes it: a label, and probabilities
// as a sequence of maps.
func labels(b *builder) {
	n, in, classes := b.batch(), b.width(60), 2+b.width(8)
	x := b.float("x", n, in)
	count := classes * in
	coefficients, intercepts := make([]float32, count), make([]float32, classes)
	for i := range coefficients {
		coefficients[i] = float32(b.rng.NormFloat64())
	}
	for i := range intercepts {
		intercepts[i] = float32(b.rng.NormFloat64())
	}
	of, names := tensor.Int64, make([]string, classes)
	ids := make([]int64, classes)
	for i := range classes {
		ids[i], names[i] = i, fmt.Sprintf("class %d", i)
	}
	known, asMap := list("classlabels_ints", ids...), list("classlabels_int64s", ids...)
	key := onnxpb.TensorProto_INT64
	if b.chance(0.5) {
		of, key = tensor.Bytes, onnxpb.TensorProto_STRING
		known, asMap = texts("classlabels_strings", names...), texts("classlabels_strings", names...)
	}
	out := b.ops("ai.onnx.ml", "LinearClassifier", 2, []string{x}, known, numbers("coefficients", coefficients...),
		numbers("intercepts", intercepts...), text("post_transform", "SOFTMAX"), integer("multi_class", 1))
	b.output("label", out[0], of, n)
	if b.chance(0.3) {
		b.output("scores", out[1], tensor.FP32, n, classes)
		return
	}
	maps := b.ops("ai.onnx.ml", "ZipMap", 1, []string{out[1]}, asMap)[0]
	b.graph.Output = append(b.graph.Output, mapsInfo(maps, key))
}

// mapsInfo declares a sequence of maps from keys of a type to numbers.
func mapsInfo(name string, key onnxpb.TensorProto_DataType) *onnxpb.ValueInfoProto {
	of, number := int32(key), int32(onnxpb.TensorProto_FLOAT)
	value := &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: &number, Shape: &onnxpb.TensorShapeProto{}}}}
	each := &onnxpb.TypeProto{Value: &onnxpb.TypeProto_MapType{MapType: &onnxpb.TypeProto_Map{KeyType: &of, ValueType: value}}}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: each}}}}
}
