package shape

import "slices"

// fusedRules are the operators of the domain com.microsoft that ONNX Runtime's
// optimiser makes of several others, and some that exporters write. One costs
// what its parts would.
func fusedRules() map[string]rule {
	all := map[string]rule{
		"FusedConv":              {conv, fusedConvCost},
		"FusedGemm":              {gemm, fusedGemmCost},
		"FusedMatMul":            {fusedMatMul, fusedMatMulCost},
		"BiasGelu":               {unary, biasCost},
		"FastGelu":               {unary, biasCost},
		"SkipLayerNormalization": {skipNormalisation, skipCost(2)},
	}
	return all
}

func fusedGemmCost(c *call, out []Value) int64 {
	return plus(matMulCost(c, out), fusedCost(c, out, 0))
}

// fusedMatMul is a product of matrices after the transpositions that were fused
// into it.
func fusedMatMul(c *call) ([]Value, error) {
	x, y := c.in(0), c.in(1)
	a := c.turned(x.Shape, "transA", "transBatchA")
	b := c.turned(y.Shape, "transB", "transBatchB")
	return multiply(x.of(a), y.of(b))
}

// turned is a shape after FusedMatMul's transpositions: batch moves the first
// dimension to the last but one, and last swaps the last two.
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

// biasCost is that of an activation and of the bias that it may add.
func biasCost(c *call, out []Value) int64 {
	if c.given(1) {
		return times(out[0].Elements(), 2)
	}
	return out[0].Elements()
}

// skipNormalisation adds two tensors and normalises the sum. Its outputs are
// that, the mean, the deviation, and the sum.
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
	return []Value{x.of(x.Shape), x.of(statistic), x.of(statistic), x.of(x.Shape)}, nil
}

// skipCost counts the sum of two tensors, the normalisation, and a bias at the
// given input.
func skipCost(parts int64) func(*call, []Value) int64 {
	return func(c *call, out []Value) int64 {
		n := parts
		if c.given(4) {
			n++
		}
		return times(out[0].Elements(), n)
	}
}
