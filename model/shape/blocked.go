package shape

import (
	"fmt"
	"math"
	"slices"
)

// blockedRules are the rules of the domain com.microsoft.nchwc. Its operators
// keep images in blocks of 8 or 16 channels, the width of the CPU's vectors.
// Shapes have the usual order, with channels padded up to whole blocks.
func blockedRules() map[string]rule {
	return map[string]rule{
		"Conv":              {conv, fusedConvCost},
		"MaxPool":           {pool, poolCost},
		"AveragePool":       {pool, poolCost},
		"GlobalMaxPool":     {globalPool, perInput},
		"GlobalAveragePool": {globalPool, perInput},
		"Upsample":          {blockedUpsample, perOutput},
		"ReorderInput":      {reorderInput, free},
		"ReorderOutput":     {reorderOutput, free},
	}
}

// reorderInput puts an image into blocks. The width of a block depends on the CPU
// that the model was optimised for. So the number of channels is known only if
// no width needs padding. Package model fills in the rest from the weights of the
// next convolution.
func reorderInput(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(unknown(4))}, nil
	}
	if len(x.Shape) != 4 {
		return nil, fmt.Errorf("input %v does not have four dimensions", x.Shape)
	}
	out := slices.Clone(x.Shape)
	if c.int("channels_last", 0) != 0 {
		out[1], out[2], out[3] = x.Shape[3], x.Shape[1], x.Shape[2]
	}
	if out[1]%LargestBlock != 0 {
		out[1] = -1
	}
	return []Value{x.of(out)}, nil
}

// LargestBlock is the maximum number of channels of a block: 16, on CPUs with
// AVX-512.
const LargestBlock = 16

// reorderOutput takes an image out of its blocks and drops the padding.
func reorderOutput(c *call) ([]Value, error) {
	x, channels := c.in(0), c.int("channels", -1)
	if x.Shape == nil {
		return []Value{x.of(unknown(4))}, nil
	}
	if len(x.Shape) != 4 {
		return nil, fmt.Errorf("input %v does not have four dimensions", x.Shape)
	}
	if channels <= 0 || x.Shape[1] >= 0 && channels > x.Shape[1] {
		return nil, fmt.Errorf("it takes %d channels out of input %v", channels, x.Shape)
	}
	out := []int64{x.Shape[0], channels, x.Shape[2], x.Shape[3]}
	if c.int("channels_last", 0) != 0 {
		out = []int64{x.Shape[0], x.Shape[2], x.Shape[3], channels}
	}
	return []Value{x.of(out)}, nil
}

func blockedUpsample(c *call) ([]Value, error) {
	x, scales := c.in(0), c.ints("scales")
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(scales) == 0 {
		return []Value{x}, nil
	}
	if len(scales) != len(x.Shape) || slices.Min(scales) < 1 {
		return nil, fmt.Errorf("scales %v do not fit input %v", scales, x.Shape)
	}
	out := make([]int64, len(scales))
	for i, s := range scales {
		out[i] = times(x.Shape[i], s)
	}
	return []Value{x.of(out)}, nil
}

// fusedConvCost is the cost of a convolution, of the tensor that it adds (input 3)
// and of its activation.
func fusedConvCost(c *call, out []Value) int64 {
	return plus(convCost(c, out), fusedCost(c, out, 3))
}

// fusedCost is the cost of the parts fused into an operator: one per output
// element for an activation, and one for a tensor that it adds. sum is the number
// of that tensor's input, 0 for none.
func fusedCost(c *call, out []Value, sum int) int64 {
	n := int64(0)
	if c.string("activation") != "" {
		n++
	}
	if sum > 0 && c.given(sum) {
		n++
	}
	return times(out[0].Elements(), n)
}

// plus adds two counts, up to the largest int64. The sum is -1 (unknown) if either
// count is negative.
func plus(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + min(b, math.MaxInt64-a)
}
