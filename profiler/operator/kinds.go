package operator

import "strings"

// kind says which values an input needs to resemble that of a real model, where the
// element type is not enough.
type kind uint8

const (
	plain    kind = iota
	decides       // The values affect the time or the output's shape.
	positive      // variances, and arguments of logarithms and roots
	unit          // from -1 to 1
	mask          // rows of ones followed by zeros
	index         // rows of a table
	length        // lengths of sequences
	scale         // scales of quantised values
	zero          // zero points of quantised values
	bias          // whole numbers that do not affect the time
)

// kinds maps an operator, without its domain, to the kinds of its inputs, in order.
// Further inputs are plain.
var kinds = map[string][]kind{
	"Log": {positive}, "ReduceLogSum": {positive}, "BitShift": {plain, positive}, "Sqrt": {positive}, "Pow": {positive, decides}, "Div": {plain, positive},
	"Mod": {plain, positive}, "Reciprocal": {positive}, "Acos": {unit}, "Asin": {unit}, "Atanh": {unit},
	"BatchNormalization": {plain, plain, plain, plain, positive},
	"Where":              {mask}, "Compress": {plain, mask},

	"Gather": {plain, index}, "GatherElements": {plain, index}, "GatherND": {plain, index},
	"ScatterElements": {plain, index}, "ScatterND": {plain, index}, "OneHot": {index, decides},
	"RotaryEmbedding":         {plain, index},
	"EmbedLayerNormalization": {index, index, plain, plain, plain, plain, plain, mask, index},

	"LSTM": {plain, plain, plain, plain, length}, "GRU": {plain, plain, plain, plain, length},
	"RNN":                 {plain, plain, plain, plain, length},
	"DynamicQuantizeLSTM": {plain, plain, plain, plain, length, plain, plain, plain, scale, zero, scale, zero},
	"Attention":           {plain, plain, plain, length}, "MultiHeadAttention": {plain, plain, plain, plain, length},
	"QAttention": {plain, plain, plain, scale, scale, length, zero, zero},

	"QuantizeLinear": {plain, scale, zero}, "DequantizeLinear": {bias, scale, zero},
	"QLinearConv":   {plain, scale, zero, plain, scale, zero, scale, zero, bias},
	"QLinearMatMul": {plain, scale, zero, plain, scale, zero, scale, zero},
	"QLinearAdd":    {plain, scale, zero, plain, scale, zero, scale, zero},
	"QLinearMul":    {plain, scale, zero, plain, scale, zero, scale, zero},
	"QLinearWhere":  {mask, plain, scale, zero, plain, scale, zero, scale, zero},
	"QGemm":         {plain, scale, zero, plain, scale, zero, bias, scale, zero},
	"ConvInteger":   {plain, plain, zero, zero}, "MatMulInteger": {plain, plain, zero, zero},
	"MatMulIntegerToFloat":  {plain, plain, scale, scale, zero, zero},
	"DynamicQuantizeMatMul": {plain, plain, scale, zero}, "MatMulNBits": {plain, plain, scale},

	"Reshape": {plain, decides}, "Expand": {plain, decides}, "Tile": {plain, decides}, "Split": {plain, decides},
	"Squeeze": {plain, decides}, "Unsqueeze": {plain, decides}, "CumSum": {plain, decides}, "TopK": {plain, decides},
	"Slice": {plain, decides, decides, decides, decides}, "Pad": {plain, decides, plain, decides},
	"Resize": {plain, decides, decides, decides}, "Upsample": {plain, decides},
	"ConvTransposeWithDynamicPads": {plain, plain, decides}, "Range": {decides, decides, decides},
	"ConstantOfShape": {decides}, "Trilu": {plain, decides}, "GridSample": {plain, unit},
}

// quantised are the kinds of an operator with one quantised input and one output.
var quantised = []kind{plain, scale, zero, scale, zero}

// kindOf is the kind of input i of an operator.
func kindOf(name string, i int) kind {
	ks, known := kinds[name]
	switch {
	case known:
	case name == "QLinearConcat" && i > 1: // Inputs 0 and 1 are the output's; then come three per tensor.
		return [...]kind{plain, scale, zero}[(i-2)%3]
	case name == "QLinearConcat":
		return quantised[i+1]
	case strings.HasPrefix(name, "QLinear"):
		ks = quantised
	case strings.HasPrefix(name, "Reduce") && i == 1:
		return decides
	}
	if i < len(ks) {
		return ks[i]
	}
	return plain
}

// bound is the number that the elements of input i must stay below, 0 for no bound. It
// is the number of a table's rows at the smallest batch, or one more than the longest
// sequence.
func (o *Operator) bound(i int) int64 {
	x := o.input(0)
	size := func(of Operand, axis int64) int64 {
		if axis < 0 {
			axis += int64(len(of.Shape))
		}
		if axis < 0 || axis >= int64(len(of.Shape)) {
			return 1
		}
		return max(1, of.Shape[axis].At(1))
	}
	switch k := kindOf(o.name(), i); {
	case k == length && len(o.Inputs[i].Shape) == 1:
		axis := int64(1) // batch, sequence, width
		if at := o.int("layout", 0); at == 0 && !strings.Contains(o.name(), "Attention") {
			axis = 0
		}
		return size(x, axis) + 1
	case k != index:
		return 0
	}
	switch o.name() {
	case "GatherND", "ScatterND":
		from := o.int("batch_dims", 0)
		least := size(x, from)
		for j := int64(1); j < min(size(o.Inputs[i], -1), int64(len(x.Shape))); j++ {
			least = min(least, size(x, from+j))
		}
		return least
	case "OneHot":
		if depth := o.input(1).Contents; len(depth) == 1 {
			return max(1, depth[0].At(1))
		}
		return 1
	case "EmbedLayerNormalization": // Words, segments and positions have a table each.
		return size(o.input(map[int]int{0: 2, 1: 4, 8: 3}[i]), 0)
	case "RotaryEmbedding":
		return size(o.input(2), 0)
	}
	return size(x, o.int("axis", 0))
}
