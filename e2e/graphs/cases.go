package graphs

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Case is a small model whose right answers Answer computes. Each stands for one way in which a
// model differs from those with a free batch first and fixed sizes behind it.
type Case struct {
	Graph
	// Answer returns the outputs for one request's inputs. A request is alone in its execution
	// as far as its answer goes.
	Answer func(in []tensor.Tensor) []tensor.Tensor
}

// Cases makes all cases.
func Cases() []*Case {
	var all []*Case
	for _, c := range []struct {
		name string
		make func(b *builder) func(in []tensor.Tensor) []tensor.Tensor
	}{
		{"batch-mean", batchMean}, {"dynamic-int8", dynamicInt8}, {"stride32", stride32}, {"past-plus-now", pastPlusNow},
		{"fixed-batch", fixedBatch}, {"scalar-input", scalarInput}, {"scalar-output", scalarOutput}, {"state-axis1", stateAxis1},
		{"out-axis1", outAxis1}, {"out-wrong-hint", outWrongHint}, {"labels", labelNumbers}, {"zipmap", zipMap}, {"nonzero", nonZero},
		{"half", half}, {"bf16", bf16}, {"mlp100", mlpOf(100)}, {"mlp300", mlpOf(300)}, {"prepacked", prepacked},
	} {
		b := newBuilder(rand.New(rand.NewPCG(1, uint64(len(all)))))
		answer := c.make(b)
		all = append(all, &Case{Graph: *b.finish(c.name), Answer: answer})
	}
	return all
}

// floats are the elements of a tensor of FP32.
func floats(t tensor.Tensor) []float32 {
	out := make([]float32, len(t.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return out
}

func result[T float32 | int64](name string, of tensor.Type, shape []int64, values []T) tensor.Tensor {
	t := tensor.Tensor{Name: name, Type: of, Shape: shape, Data: []byte{}}
	for _, v := range values {
		t.Data = of.Append(t.Data, float64(v))
	}
	return t
}

// y is an answer of one output of FP32.
func y(shape []int64, values []float32) []tensor.Tensor {
	return []tensor.Tensor{result("y", tensor.FP32, shape, values)}
}

// matrix returns the numbers of the weight that was added last.
func (b *builder) matrix() []float32 {
	return floats(tensor.Tensor{Data: b.graph.Initializer[len(b.graph.Initializer)-1].RawData})
}

// times multiplies x, which has in columns, by w.
func times(x, w []float32, in, out int) []float32 {
	rows := len(x) / in
	product := make([]float32, rows*out)
	for r := range rows {
		for c := range out {
			sum := 0.0
			for i := range in {
				sum += float64(x[r*in+i]) * float64(w[i*out+c])
			}
			product[r*out+c] = float32(sum)
		}
	}
	return product
}

// batchMean subtracts from each row the mean of the request's rows.
func batchMean(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 4)
	mean := b.op("ReduceMean", []string{x}, list("axes", 0), integer("keepdims", 1))
	b.output("y", b.op("Sub", []string{x, mean}), tensor.FP32, Rows, 4)
	return func(in []tensor.Tensor) []tensor.Tensor {
		x := floats(in[0])
		out, rows := make([]float32, len(x)), float32(len(x)/4)
		for c := range 4 {
			sum := float32(0)
			for i := c; i < len(x); i += 4 {
				sum += x[i]
			}
			for i := c; i < len(x); i += 4 {
				out[i] = x[i] - sum/rows
			}
		}
		return y(in[0].Shape, out)
	}
}

// dynamicInt8 quantises its input with one scale for all rows, as quantize_dynamic makes it.
func dynamicInt8(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 16)
	values := make([]float64, 16*8)
	for i := range values {
		values[i] = float64(b.rng.IntN(255) - 127)
	}
	w := b.constant(tensor.Int8, []int64{16, 8}, values...)
	q := b.ops("", "DynamicQuantizeLinear", 3, []string{x})
	product := b.cast(b.op("MatMulInteger", []string{q[0], w, q[2]}), tensor.FP32)
	b.output("y", b.op("Mul", []string{product, q[1]}), tensor.FP32, Rows, 8)
	return func(in []tensor.Tensor) []tensor.Tensor {
		x, low, high := floats(in[0]), float32(0), float32(0)
		for _, v := range x {
			low, high = min(low, v), max(high, v)
		}
		scale := (high - low) / 255
		zero := math.RoundToEven(float64(-low / scale))
		rounded, weights := make([]float32, len(x)), make([]float32, len(values))
		for i, v := range x {
			rounded[i] = float32(min(max(math.RoundToEven(float64(v/scale))+zero, 0), 255) - zero)
		}
		for i, v := range values {
			weights[i] = float32(v)
		}
		out := times(rounded, weights, 16, 8)
		for i := range out {
			out[i] *= scale
		}
		return y([]int64{in[0].Shape[0], 8}, out)
	}
}

// stride32 takes only sizes that are multiples of 32.
func stride32(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	b.sizes = [][]int64{{64, 32}, {32, 32}}
	x := b.float("x", Rows, 1, Free(0), Free(1))
	pooled := b.op("MaxPool", []string{x}, list("kernel_shape", 32, 32), list("strides", 32, 32))
	scales := b.constant(tensor.FP32, []int64{4}, 1, 1, 32, 32)
	b.output("y", b.op("Add", []string{b.op("Resize", []string{pooled, "", scales}, text("mode", "nearest")), x}), tensor.FP32, Rows, 1, Free(0), Free(1))
	return func(in []tensor.Tensor) []tensor.Tensor {
		x, h, w := floats(in[0]), int(in[0].Shape[2]), int(in[0].Shape[3])
		largest := map[[3]int]float32{}
		block := func(i int) [3]int { return [3]int{i / (h * w), i / w % h / 32, i % w / 32} }
		for i, v := range x {
			if most, ok := largest[block(i)]; !ok || v > most {
				largest[block(i)] = v
			}
		}
		out := make([]float32, len(x))
		for i, v := range x {
			out[i] = v + largest[block(i)]
		}
		return y(in[0].Shape, out)
	}
}

// pastPlusNow has an axis whose size is the sum of two others, as models with a cache have.
func pastPlusNow(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	b.sizes = [][]int64{{3, 5, 8}, {1, 2, 3}}
	x, past, mask := b.float("x", Rows, Free(0)), b.float("past", Rows, Free(1)), b.float("mask", Rows, Free(2))
	all := b.op("Concat", []string{past, x}, integer("axis", 1))
	b.output("y", b.op("Mul", []string{all, mask}), tensor.FP32, Rows, Free(2))
	return func(in []tensor.Tensor) []tensor.Tensor {
		x, past, mask := floats(in[0]), floats(in[1]), floats(in[2])
		s, p := int(in[0].Shape[1]), int(in[1].Shape[1])
		var out []float32
		for r := range int(in[0].Shape[0]) {
			row := append(append([]float32(nil), past[r*p:(r+1)*p]...), x[r*s:(r+1)*s]...)
			for i, v := range row {
				out = append(out, v*mask[r*(s+p)+i])
			}
		}
		return y(in[2].Shape, out)
	}
}

// fixedBatch takes exactly one row.
func fixedBatch(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", 1, 16)
	weights := b.weights(16, 16, 8)
	w := b.matrix()
	b.output("y", b.op("MatMul", []string{x, weights}), tensor.FP32, 1, 8)
	return func(in []tensor.Tensor) []tensor.Tensor { return y([]int64{1, 8}, times(floats(in[0]), w, 16, 8)) }
}

// scalarInput has an input that is the same for all rows of a request.
func scalarInput(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x, k := b.float("x", Rows, 4), b.float("k")
	b.output("y", b.op("Mul", []string{x, k}), tensor.FP32, Rows, 4)
	return func(in []tensor.Tensor) []tensor.Tensor {
		out := floats(in[0])
		for i := range out {
			out[i] *= floats(in[1])[0]
		}
		return y(in[0].Shape, out)
	}
}

// scalarOutput answers with one number, whatever the request's rows.
func scalarOutput(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 4)
	b.output("y", b.op("ReduceMax", []string{x}, integer("keepdims", 0)), tensor.FP32)
	return func(in []tensor.Tensor) []tensor.Tensor {
		largest := float32(math.Inf(-1))
		for _, v := range floats(in[0]) {
			largest = max(largest, v)
		}
		return y([]int64{}, []float32{largest})
	}
}

// stateAxis1 has a state whose batch is on the second axis.
func stateAxis1(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x, s := b.float("x", Rows, 4), b.float("s", 2, Rows, 4)
	b.output("y", b.op("Add", []string{x, x}), tensor.FP32, Rows, 4)
	b.output("s2", s, tensor.FP32, 2, Rows, 4)
	return func(in []tensor.Tensor) []tensor.Tensor {
		out := floats(in[0])
		for i := range out {
			out[i] *= 2
		}
		state := in[1]
		state.Name = "s2"
		return append(y(in[0].Shape, out), state)
	}
}

// outAxis1 answers with the batch on the second axis.
func outAxis1(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 4)
	b.output("y", b.op("Transpose", []string{x}, list("perm", 1, 0)), tensor.FP32, 4, Rows)
	return func(in []tensor.Tensor) []tensor.Tensor {
		x, rows := floats(in[0]), int(in[0].Shape[0])
		out := make([]float32, len(x))
		for i, v := range x {
			out[i%4*rows+i/4] = v
		}
		return y([]int64{4, int64(rows)}, out)
	}
}

// outWrongHint declares an answer of one number and gives one for each row.
func outWrongHint(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 4)
	b.output("y", b.op("ArgMax", []string{x}, integer("axis", 1), integer("keepdims", 0)), tensor.Int64, 1)
	return func(in []tensor.Tensor) []tensor.Tensor {
		x := floats(in[0])
		out := make([]int64, len(x)/4)
		for r := range out {
			for i := range 4 {
				if x[4*r+i] > x[4*r+int(out[r])] {
					out[r] = int64(i)
				}
			}
		}
		return []tensor.Tensor{result("y", tensor.Int64, []int64{int64(len(out))}, out)}
	}
}

// labelNumbers takes strings.
func labelNumbers(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	s := b.input(Input{Name: "s", Type: tensor.Bytes, Shape: []int64{Rows}, Words: []string{"cat", "dog", "", "bird", "ចាប"}})
	b.output("y", b.ops("ai.onnx.ml", "LabelEncoder", 1, []string{s}, texts("keys_strings", "cat", "dog"),
		list("values_int64s", 1, 2), integer("default_int64", -1))[0], tensor.Int64, Rows)
	return func(in []tensor.Tensor) []tensor.Tensor {
		out := make([]int64, 0, in[0].Shape[0])
		for data := in[0].Data; len(data) > 0; {
			end := 4 + binary.LittleEndian.Uint32(data)
			switch word := string(data[4:end]); word {
			case "cat":
				out = append(out, 1)
			case "dog":
				out = append(out, 2)
			default:
				out = append(out, -1)
			}
			data = data[end:]
		}
		return []tensor.Tensor{result("y", tensor.Int64, in[0].Shape, out)}
	}
}

// zipMap answers with a sequence of maps, which clients get as a matrix.
func zipMap(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.float("x", Rows, 3)
	b.graph.Node = append(b.graph.Node, node("ZipMap", []string{x}, []string{"y"}, list("classlabels_int64s", 0, 1, 2)))
	domain := "ai.onnx.ml"
	b.graph.Node[0].Domain = &domain
	b.graph.Output = append(b.graph.Output, mapsInfo("y", onnxpb.TensorProto_INT64))
	return func(in []tensor.Tensor) []tensor.Tensor { return y(in[0].Shape, floats(in[0])) }
}

// nonZero answers with as many rows as there are numbers that are not 0.
func nonZero(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.input(Input{Name: "x", Type: tensor.Int32, Shape: []int64{Rows, 4}, High: 1})
	b.output("y", b.op("Transpose", []string{b.op("NonZero", []string{x})}, list("perm", 1, 0)), tensor.Int64, unknown, 2)
	return func(in []tensor.Tensor) []tensor.Tensor {
		var out []int64
		for i := range len(in[0].Data) / 4 {
			if in[0].Data[4*i] != 0 {
				out = append(out, int64(i/4), int64(i%4))
			}
		}
		return []tensor.Tensor{result("y", tensor.Int64, []int64{int64(len(out) / 2), 2}, out)}
	}
}

// half has float16 outputs of free length.
func half(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	b.sizes = [][]int64{{5}, {2}}
	x := b.input(Input{Name: "x", Type: tensor.FP16, Shape: []int64{Rows, Free(0)}})
	b.output("y", b.op("Neg", []string{x}), tensor.FP16, Rows, Free(0))
	return func(in []tensor.Tensor) []tensor.Tensor {
		out := tensor.Tensor{Name: "y", Type: tensor.FP16, Shape: in[0].Shape, Data: append([]byte(nil), in[0].Data...)}
		for i := 1; i < len(out.Data); i += 2 {
			out.Data[i] ^= 0x80
		}
		return []tensor.Tensor{out}
	}
}

// bf16 gives back its input.
func bf16(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	x := b.input(Input{Name: "x", Type: tensor.BF16, Shape: []int64{Rows, 2}, High: 1000})
	b.output("y", x, tensor.BF16, Rows, 2)
	return func(in []tensor.Tensor) []tensor.Tensor {
		out := in[0]
		out.Name = "y"
		return []tensor.Tensor{out}
	}
}

// mlpOf is what PyTorch exports for a perceptron with units that are no multiple of 16.
func mlpOf(units int64) func(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	return func(b *builder) func([]tensor.Tensor) []tensor.Tensor {
		x := b.float("x", Rows, units)
		var layers [][]float32
		sizes := []int64{units, units, units, 10}
		for i, out := range sizes[1:] {
			weights := b.weights(units, sizes[i], out)
			layers = append(layers, b.matrix())
			bias := b.weights(1, out)
			layers = append(layers, b.matrix())
			x = b.op("Gemm", []string{x, weights, bias})
			if i < 2 {
				x = b.op("Relu", []string{x})
			}
		}
		b.output("y", x, tensor.FP32, Rows, 10)
		return func(in []tensor.Tensor) []tensor.Tensor {
			x := floats(in[0])
			for i, out := range sizes[1:] {
				x = times(x, layers[2*i], int(sizes[i]), int(out))
				for at := range x {
					x[at] += layers[2*i+1][at%int(out)]
					if i < 2 {
						x[at] = max(x[at], 0)
					}
				}
			}
			return y([]int64{in[0].Shape[0], 10}, x)
		}
	}
}

// prepacked multiplies by constants that are nodes, and whose sizes engines pack unaligned.
func prepacked(b *builder) func([]tensor.Tensor) []tensor.Tensor {
	const in, out = 120, 360
	b.sizes = [][]int64{{7}, {2}}
	x := b.float("x", Rows, Free(0), in)
	weights, bias := b.weights(in, in, out), b.weights(1, out)
	constants := b.graph.Initializer
	b.graph.Initializer = nil
	w, v := floats(tensor.Tensor{Data: constants[0].RawData}), floats(tensor.Tensor{Data: constants[1].RawData})
	for _, c := range constants {
		value := attribute("value", onnxpb.AttributeProto_TENSOR)
		value.T = c
		b.graph.Node = append(b.graph.Node, node("Constant", nil, []string{c.GetName()}, value))
	}
	b.output("y", b.op("Add", []string{b.op("MatMul", []string{x, weights}), bias}), tensor.FP32, Rows, Free(0), out)
	return func(tensors []tensor.Tensor) []tensor.Tensor {
		product := times(floats(tensors[0]), w, in, out)
		for i := range product {
			product[i] += v[i%out]
		}
		return y([]int64{tensors[0].Shape[0], tensors[0].Shape[1], out}, product)
	}
}
