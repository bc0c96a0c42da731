package shape

import (
	"fmt"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// fusedRules are the rules of the domain com.microsoft for operators that run on
// a CPU. ONNX Runtime's optimiser fuses others into these, and exporters write
// some. A fused operator costs as much as its parts.
func fusedRules() map[string]rule {
	all := map[string]rule{
		"FusedConv":                        {conv, fusedConvCost},
		"FusedGemm":                        {gemm, fusedGemmCost},
		"FusedMatMul":                      {fusedMatMul, fusedMatMulCost},
		"TransposeMatMul":                  {fusedMatMul, fusedMatMulCost},
		"MatMulNBits":                      {packedMatMul, packedMatMulCost},
		"MatMulBnb4":                       {packedMatMul, packedMatMulCost},
		"BiasGelu":                         {unary, parts(1, 1)},
		"FastGelu":                         {unary, parts(1, 1)},
		"BiasSoftmax":                      {unary, parts(1, 1)},
		"GatedAdd":                         {unary, parts(2)},
		"GatedRMSNorm":                     {unary, parts(2)},
		"ScaledSiLU":                       {unary, parts(1, 1)},
		"SkipLayerNormalization":           {skipNormalisation, parts(2, 4)},
		"SkipSimplifiedLayerNormalization": {skipNormalisation, parts(2, 3)},
		"ConvTransposeWithDynamicPads":     {paddedConvTranspose, convTransposeCost},
		"NhwcMaxPool":                      {channelsLast(pool), poolCost},
		"MaxpoolWithMask":                  {pool, poolCost},
		"CDist":                            {distances, distancesCost},
		"CropAndResize":                    {cropAndResize, perOutput},
		"UnfoldTensor":                     {unfold, free},
		"ExpandDims":                       {expandDims, free},
		"MoE":                              {unary, expertsCost},
		"GatherND":                         {gatherND, free},
		"GridSample":                       {gridSample, perOutput},
		"Pad":                              {pad, free},
		"Range":                            {rangeOf, free},
	}
	for _, name := range []string{"Gelu", "QuickGelu", "BranchwiseRMSNorm", "Trilu"} {
		all[name] = rule{unary, perOutput}
	}
	maps.Copy(all, attentionRules())
	maps.Copy(all, quantisedRules())
	return all
}

// parts is the cost of an element-wise operator that combines n others, and one
// more for each of the optional inputs that the node has.
func parts(n int64, optional ...int) func(*call, []Value) int64 {
	return func(c *call, out []Value) int64 {
		all := n
		for _, i := range optional {
			if c.given(i) {
				all++
			}
		}
		return times(out[0].Elements(), all)
	}
}

func fusedGemmCost(c *call, out []Value) int64 {
	return plus(matMulCost(c, out), fusedCost(c, out, 0))
}

// fusedMatMul infers a matrix product with its fused transpositions.
func fusedMatMul(c *call) ([]Value, error) {
	x, y := c.in(0), c.in(1)
	a := c.turned(x.Shape, "transA", "transBatchA")
	b := c.turned(y.Shape, "transB", "transBatchB")
	return multiply(x.of(a), y.of(b))
}

// turned is a shape after FusedMatMul's transpositions. The attribute batch moves
// the first dimension to the last but one; the attribute last swaps the last two.
func (c *call) turned(shape []int64, last, batch string) []int64 {
	n := len(shape)
	if n < 2 {
		return shape
	}
	out := slices.Clone(shape)
	if c.int(batch, 0) != 0 {
		out = slices.Concat(shape[1:n-1], shape[:1], shape[n-1:])
	}
	if c.int(last, 0) != 0 {
		out[n-2], out[n-1] = out[n-1], out[n-2]
	}
	return out
}

func fusedMatMulCost(c *call, out []Value) int64 {
	a := c.turned(c.in(0).Shape, "transA", "transBatchA")
	if len(a) == 0 {
		return -1
	}
	return times(out[0].Elements(), a[len(a)-1])
}

// packedMatMul infers a product with weights of few bits. The attributes K and N
// give the size of the weights.
func packedMatMul(c *call) ([]Value, error) {
	x, k, n := c.in(0), c.int("K", -1), c.int("N", -1)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	last := len(x.Shape) - 1
	if k <= 0 || n <= 0 || last < 0 || x.Shape[last] >= 0 && x.Shape[last] != k {
		return nil, fmt.Errorf("input %v does not fit weights of %d by %d", x.Shape, k, n)
	}
	out := slices.Clone(x.Shape)
	out[last] = n
	return []Value{x.of(out)}, nil
}

func packedMatMulCost(c *call, out []Value) int64 {
	return times(out[0].Elements(), max(c.int("K", -1), -1))
}

// skipNormalisation infers an operator that adds two tensors and normalises the
// sum. Its outputs are the normalised sum, the mean, the deviation, and the sum.
func skipNormalisation(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil), x.of(nil), x.of(nil), x.of(nil)}, nil
	}
	if _, err := broadcast(x.Shape, c.in(1).Shape); err != nil {
		return nil, err
	}
	statistic := slices.Clone(x.Shape)
	if len(statistic) > 0 {
		statistic[len(statistic)-1] = 1
	}
	s := Value{Elem: onnxpb.TensorProto_FLOAT, Shape: statistic}
	return []Value{x.of(x.Shape), s, s, x.of(x.Shape)}, nil
}

// paddedConvTranspose infers a ConvTranspose whose pads are input 2.
func paddedConvTranspose(c *call) ([]Value, error) {
	pads, known := c.intsOr("pads", 2)
	if known {
		return convTranspose(c.with("pads", &onnxpb.AttributeProto{Ints: pads}))
	}
	out, err := convTranspose(c)
	for i := 2; err == nil && i < len(out[0].Shape); i++ {
		out[0].Shape[i] = -1
	}
	return out, err
}

// with is the call with another attribute. An attribute without integers is
// removed.
func (c *call) with(name string, a *onnxpb.AttributeProto) *call {
	other := *c
	other.attributes = maps.Clone(c.attributes)
	delete(other.attributes, name)
	if len(a.GetInts()) > 0 {
		other.attributes[name] = a
	}
	return &other
}

// channelsLast is infer for images whose channels are the last dimension, in the
// input and in the one output.
func channelsLast(infer func(*call) ([]Value, error)) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		x := c.in(0)
		if len(x.Shape) < 3 {
			return infer(c)
		}
		other := *c
		other.inputs = slices.Clone(c.inputs)
		other.inputs[0].Shape = slices.Concat(x.Shape[:1], x.Shape[len(x.Shape)-1:], x.Shape[1:len(x.Shape)-1])
		out, err := infer(&other)
		if err != nil || len(out[0].Shape) < 3 {
			return out, err
		}
		s := out[0].Shape
		return []Value{out[0].of(slices.Concat(s[:1], s[2:], s[1:2]))}, nil
	}
}

// eitherLast is channelsLast if the attribute channels_last is set, otherwise
// infer.
func eitherLast(infer func(*call) ([]Value, error)) func(*call) ([]Value, error) {
	last := channelsLast(infer)
	return func(c *call) ([]Value, error) {
		if c.int("channels_last", 0) != 0 {
			return last(c)
		}
		return infer(c)
	}
}

// distances infers CDist: the distances between each row of one matrix and each
// row of another.
func distances(c *call) ([]Value, error) {
	a, b := c.in(0).Shape, c.in(1).Shape
	if a == nil || b == nil {
		return []Value{c.in(0).of(unknown(2))}, nil
	}
	if len(a) != 2 || len(b) != 2 || a[1] >= 0 && b[1] >= 0 && a[1] != b[1] {
		return nil, fmt.Errorf("shapes %v and %v are not two matrices with rows of one length", a, b)
	}
	return []Value{c.in(0).of([]int64{a[0], b[0]})}, nil
}

func distancesCost(c *call, out []Value) int64 {
	a := c.in(0).Shape
	if len(a) != 2 {
		return -1
	}
	return times(out[0].Elements(), a[1])
}

// expertsCost is the cost of the k experts that each token goes to: per token, k
// times the weights of one expert.
func expertsCost(c *call, _ []Value) int64 {
	x := c.in(0).Shape
	if len(x) == 0 {
		return -1
	}
	each := int64(0)
	for _, i := range []int{2, 4, 6} {
		if !c.given(i) {
			continue
		}
		w := c.in(i).Shape
		if len(w) == 0 {
			return -1
		}
		each = plus(each, product(w[1:]))
	}
	return times(times(product(x[:len(x)-1]), max(c.int("k", 1), 0)), each)
}
