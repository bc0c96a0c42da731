package shape

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// quantisedRules are the rules of com.microsoft's operators on quantised tensors.
// Each such tensor is followed by its scale and zero point as inputs.
func quantisedRules() map[string]rule {
	matMul := func(x, y int) func(*call) ([]Value, error) { return at(fusedMatMul, x, y) }
	all := map[string]rule{
		"QuantizeLinear":           {quantize, perOutput},
		"DequantizeLinear":         {dequantize, perOutput},
		"DynamicQuantizeMatMul":    {matMul(0, 1), quantisedMatMulCost(0, 4)},
		"MatMulIntegerToFloat":     {elemOf(matMul(0, 1), 2), quantisedMatMulCost(0, 6)},
		"MatMulInteger16":          {typed(matMul(0, 1), onnxpb.TensorProto_INT32), quantisedMatMulCost(0, 0)},
		"QGemm":                    {elemOf(at(gemm, 0, 3), 8, 1), quantisedMatMulCost(0, 0)},
		"QLinearConv":              {elemOf(eitherLast(at(conv, 0, 3)), 7), quantisedConvCost},
		"QLinearAveragePool":       {eitherLast(pool), poolCost},
		"QLinearGlobalAveragePool": {eitherLast(globalPool), perInput},
		"QLinearAdd":               {at(elementwise, 0, 3), perOutput},
		"QLinearMul":               {at(elementwise, 0, 3), perOutput},
		"QLinearWhere":             {at(where, 0, 1, 4), perOutput},
		"QLinearConcat":            {quantisedConcat, perOutput},
		"DynamicQuantizeLSTM":      {quantisedLSTM, quantisedLSTMCost},
		"GatherBlockQuantized":     {gatherBlocks, perOutput},
	}
	for _, name := range []string{"QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"} {
		all[name] = rule{unary, perOutput}
	}
	return all
}

// at is infer on these inputs of the node only.
func at(infer func(*call) ([]Value, error), numbers ...int) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		other := *c
		other.inputs = make([]Value, len(numbers))
		for i, n := range numbers {
			other.inputs[i] = c.in(n)
		}
		return infer(&other)
	}
}

// elemOf is infer with another element type for the outputs: that of the first of
// these inputs that the node has.
func elemOf(infer func(*call) ([]Value, error), numbers ...int) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		out, err := infer(c)
		for _, n := range numbers {
			if c.given(n) {
				for i := range out {
					out[i].Elem = c.in(n).Elem
				}
				break
			}
		}
		return out, err
	}
}

// quantisedMatMulCost is the cost of a matrix product and of the bias. bias is the
// number of its input, 0 for none.
func quantisedMatMulCost(x, bias int) func(*call, []Value) int64 {
	return func(c *call, out []Value) int64 {
		n := times(out[0].Elements(), c.inner(x))
		if bias > 0 && c.given(bias) {
			n = plus(n, out[0].Elements())
		}
		return n
	}
}

// inner is the number of products in one element of a matrix product.
func (c *call) inner(x int) int64 {
	a := c.in(x).Shape
	switch {
	case len(a) == 0:
		return -1
	case c.int("transA", 0) != 0 && len(a) > 1:
		return a[len(a)-2]
	}
	return a[len(a)-1]
}

func quantisedConvCost(c *call, out []Value) int64 {
	w := c.in(3).Shape
	if len(w) < 2 {
		return -1
	}
	return times(out[0].Elements(), product(w[1:]))
}

// quantisedConcat infers QLinearConcat. The output's scale and zero point are
// inputs 0 and 1, before the tensors.
func quantisedConcat(c *call) ([]Value, error) {
	var numbers []int
	for i := 2; i < len(c.inputs); i += 3 {
		numbers = append(numbers, i)
	}
	return at(concat, numbers...)(c)
}

// quantisedLSTM infers DynamicQuantizeLSTM. The dimensions of its weights are
// directions, inputs, gates × cells; LSTM has the last two swapped.
func quantisedLSTM(c *call) ([]Value, error) {
	turned := func(v Value) Value {
		if len(v.Shape) == 3 {
			v.Shape = []int64{v.Shape[0], v.Shape[2], v.Shape[1]}
		}
		return v
	}
	other := *c
	other.inputs = slices.Clone(c.inputs)
	for _, i := range []int{1, 2} {
		if i < len(other.inputs) {
			other.inputs[i] = turned(other.inputs[i])
		}
	}
	return recurrent(4)(&other)
}

func quantisedLSTMCost(c *call, _ []Value) int64 {
	x, w, r := c.in(0).Shape, c.in(1).Shape, c.in(2).Shape
	if len(x) != 3 || len(w) != 3 || len(r) != 3 {
		return -1
	}
	return times(times(x[0], x[1]), plus(product(w), product(r)))
}

// gatherBlocks infers GatherBlockQuantized, which looks up rows of elements of few
// bits. A byte may hold several elements.
func gatherBlocks(c *call) ([]Value, error) {
	x, index := c.in(0), c.in(1).Shape
	out := Value{Elem: c.in(2).Elem}
	if x.Shape == nil || index == nil {
		return []Value{out}, nil
	}
	from, err := axis(c.int("gather_axis", 0), len(x.Shape))
	if err != nil {
		return nil, err
	}
	whole := slices.Clone(x.Shape)
	if bits := c.int("bits", 4); x.Elem == onnxpb.TensorProto_UINT8 && bits > 0 && bits < 8 {
		whole[len(whole)-1] = times(whole[len(whole)-1], 8/bits)
	}
	out.Shape = join(whole[:from], index, whole[from+1:])
	return []Value{out}, nil
}

func quantize(c *call) ([]Value, error) {
	elem := c.in(2).Elem
	if !c.given(2) {
		elem = onnxpb.TensorProto_DataType(c.int("output_dtype", int64(onnxpb.TensorProto_UINT8)))
	}
	return []Value{{Elem: elem, Shape: c.in(0).Shape}}, nil
}

func dequantize(c *call) ([]Value, error) {
	elem := c.in(1).Elem
	if elem == onnxpb.TensorProto_UNDEFINED {
		elem = onnxpb.TensorProto_FLOAT
	}
	return []Value{{Elem: elem, Shape: c.in(0).Shape}}, nil
}

func dynamicQuantize(c *call) ([]Value, error) {
	const b = onnxpb.TensorProto_UINT8
	return []Value{{Elem: b, Shape: c.in(0).Shape}, {Elem: onnxpb.TensorProto_FLOAT, Shape: []int64{}}, {Elem: b, Shape: []int64{}}}, nil
}

// quantisedMatMul infers the standard QLinearMatMul.
func quantisedMatMul(c *call) ([]Value, error) {
	if len(c.inputs) < 8 {
		return nil, fmt.Errorf("it has %d inputs; it takes 8", len(c.inputs))
	}
	return elemOf(at(matMul, 0, 3), 7)(c)
}
