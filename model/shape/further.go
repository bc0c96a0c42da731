package shape

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// registerFurther adds rarer standard operators, and standard operators that hold
// a whole piece of a network.
func registerFurther() {
	rules["Attention"] = rule{standardAttention, standardAttentionCost}
	rules["RotaryEmbedding"] = rule{unary, parts(2)}
	rules["RMSNormalization"] = rule{normalisation, perOutput}
	// SimplifiedLayerNormalization is ONNX Runtime's own, without a domain.
	rules["SimplifiedLayerNormalization"] = rule{normalisation, perOutput}
	rules["Einsum"] = rule{einsum, einsumCost}
	rules["GridSample"] = rule{gridSample, perOutput}
	rules["RoiAlign"] = rule{regions, regionsCost}
	rules["NonMaxSuppression"] = rule{suppression, perInput}
	rules["Compress"] = rule{compress, free}
	rules["DFT"] = rule{fourier, fourierCost}
	rules["STFT"] = rule{shortFourier, fourierCost}
	rules["EyeLike"] = rule{eyeLike, free}
	rules["Det"] = rule{determinant, perInput}
	rules["RandomNormal"] = rule{random, perOutput}
	rules["RandomUniform"] = rule{random, perOutput}
	rules["QLinearMatMul"] = rule{quantisedMatMul, quantisedMatMulCost(0, 0)}
	rules["QLinearConv"] = rule{elemOf(at(conv, 0, 3), 7), quantisedConvCost}
	register(rule{unary, free}, "ReverseSequence", "ScatterND", "ScatterElements", "Scatter", "TensorScatter")
	register(rule{unary, perOutput}, "Acosh", "Asinh", "Atanh", "Bernoulli", "BitwiseNot", "Cosh", "CumProd",
		"RandomNormalLike", "RandomUniformLike", "Shrink", "Sinh", "Swish")
	register(rule{elementwise, perOutput}, "BitwiseAnd", "BitwiseOr", "BitwiseXor")
}

// standardAttention infers ONNX's Attention of opset 23. It is like
// MultiHeadAttention, but the number of key heads has its own attribute and the
// earlier keys are input 4. The output has the query's layout.
func standardAttention(c *call) ([]Value, error) {
	x := c.in(0)
	query, key, value, ok := c.multiHeads(4)
	if !ok {
		return []Value{x.of(unknownLike(x.Shape)), x.of(unknown(4)), x.of(unknown(4)), x.of(unknown(4))}, nil
	}
	heads, shared := c.attentionHeads()
	if heads < 0 || shared < 0 {
		return nil, fmt.Errorf("query %v and key %v do not give their number of heads", x.Shape, c.in(1).Shape)
	}
	// Several query heads may share one value head. Each query head has an output.
	each := share(value.width, shared)
	out := []int64{query.batch, query.length, times(each, heads)}
	if len(x.Shape) == 4 {
		out = []int64{query.batch, heads, query.length, each}
	}
	present := func(width int64) Value {
		return x.of([]int64{query.batch, shared, key.length, share(width, shared)})
	}
	scores := x.of([]int64{query.batch, heads, query.length, key.length})
	return []Value{x.of(out), present(key.width), present(value.width), scores}, nil
}

// attentionHeads is the number of heads of the query and of the key, -1 if the
// node does not give it.
func (c *call) attentionHeads() (query, key int64) {
	of := func(i int, name string) int64 {
		if s := c.in(i).Shape; len(s) == 4 {
			return s[1]
		}
		if n := c.int(name, 0); n > 0 {
			return n
		}
		return -1
	}
	return of(0, "q_num_heads"), of(1, "kv_num_heads")
}

func share(width, heads int64) int64 {
	if width < 0 || heads <= 0 {
		return -1
	}
	return width / heads
}

func standardAttentionCost(c *call, _ []Value) int64 {
	query, key, value, ok := c.multiHeads(4)
	heads, shared := c.attentionHeads()
	if !ok {
		return -1
	}
	values := times(share(value.width, shared), heads)
	return attentionCost(query.batch, query.length, key.length, heads, plus(query.width, values))
}

func eyeLike(c *call) ([]Value, error) {
	x := c.in(0)
	elem := onnxpb.TensorProto_DataType(c.int("dtype", int64(x.Elem)))
	return []Value{{Elem: elem, Shape: slices.Clone(x.Shape)}}, nil
}

// determinant infers Det: one number for each matrix.
func determinant(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 2 {
		return nil, fmt.Errorf("input %v is not a matrix", x.Shape)
	}
	return []Value{x.of(append([]int64{}, x.Shape[:len(x.Shape)-2]...))}, nil
}

func random(c *call) ([]Value, error) {
	elem := onnxpb.TensorProto_DataType(c.int("dtype", int64(onnxpb.TensorProto_FLOAT)))
	return []Value{{Elem: elem, Shape: append([]int64{}, c.ints("shape")...)}}, nil
}
