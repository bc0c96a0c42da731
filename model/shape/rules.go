package shape

import "github.com/faas-infer/faas-infer/model/onnxpb"

// rules maps standard operators to their rules, domains each domain to its rules.
var (
	rules   map[string]rule
	domains map[string]map[string]rule
)

// init fills the tables because their declarations would form an initialisation
// cycle.
func init() {
	rules = map[string]rule{
		"Conv":            {conv, convCost},
		"ConvInteger":     {typed(conv, onnxpb.TensorProto_INT32), convCost},
		"ConvTranspose":   {convTranspose, convTransposeCost},
		"MatMul":          {matMul, matMulCost},
		"MatMulInteger":   {typed(matMul, onnxpb.TensorProto_INT32), matMulCost},
		"Gemm":            {gemm, matMulCost},
		"LSTM":            {recurrent(4), recurrentCost(4)},
		"GRU":             {recurrent(3), recurrentCost(3)},
		"RNN":             {recurrent(1), recurrentCost(1)},
		"MaxPool":         {pool, poolCost},
		"AveragePool":     {pool, poolCost},
		"LpPool":          {pool, poolCost},
		"Where":           {where, perOutput},
		"Dropout":         {dropout, free},
		"ArgMax":          {argument, perInput},
		"ArgMin":          {argument, perInput},
		"TopK":            {topK, perInput},
		"Reshape":         {reshape, free},
		"Flatten":         {flatten, free},
		"Transpose":       {transpose, free},
		"Squeeze":         {squeeze, free},
		"Unsqueeze":       {unsqueeze, free},
		"Concat":          {concat, free},
		"Split":           {split, free},
		"Slice":           {slice, free},
		"Gather":          {gather, free},
		"GatherElements":  {gatherElements, free},
		"GatherND":        {gatherND, free},
		"Expand":          {expand, free},
		"Tile":            {tile, free},
		"Pad":             {pad, free},
		"DepthToSpace":    {depthToSpace, free},
		"SpaceToDepth":    {spaceToDepth, free},
		"Resize":          {resize, perOutput},
		"Upsample":        {resize, perOutput},
		"OneHot":          {oneHot, free},
		"Cast":            {cast, free},
		"CastLike":        {castLike, free},
		"Identity":        {identity, free},
		"Constant":        {constant, free},
		"ConstantOfShape": {constantOfShape, free},
		"Shape":           {shapeOf, free},
		"Size":            {sizeOf, free},
		"Range":           {rangeOf, free},
		"NonZero":         {nonZero, perInput},

		"LayerNormalization":    {normalisation, perOutput},
		"DequantizeLinear":      {dequantize, perOutput},
		"QuantizeLinear":        {quantize, perOutput},
		"DynamicQuantizeLinear": {dynamicQuantize, perOutput},
	}
	register(rule{unary, perOutput}, "Abs", "Acos", "Asin", "Atan", "BatchNormalization", "Ceil", "Celu", "Clip",
		"Cos", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "GroupNormalization", "HardSigmoid", "HardSwish",
		"Hardmax", "InstanceNormalization", "LRN", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization",
		"MeanVarianceNormalization", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
		"Sin", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu", "Trilu")
	register(rule{elementwise, perOutput}, "Add", "Sub", "Mul", "Div", "Mod", "Pow", "PRelu", "Max", "Min", "Mean",
		"Sum", "BitShift")
	register(rule{typed(elementwise, onnxpb.TensorProto_BOOL), perOutput}, "Equal", "Greater", "GreaterOrEqual",
		"Less", "LessOrEqual", "And", "Or", "Xor")
	register(rule{typed(unary, onnxpb.TensorProto_BOOL), perOutput}, "IsNaN", "IsInf")
	register(rule{reduce, perInput}, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
		"ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
	register(rule{globalPool, perInput}, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
	registerFurther()
	domains = map[string]map[string]rule{
		"": rules, "ai.onnx": rules, "com.microsoft": fusedRules(), "com.microsoft.nchwc": blockedRules(),
	}
}

func register(r rule, names ...string) {
	for _, name := range names {
		rules[name] = r
	}
}

// typed is infer with elem as the element type of the outputs.
func typed(infer func(*call) ([]Value, error), elem onnxpb.TensorProto_DataType) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		out, err := infer(c)
		for i := range out {
			out[i].Elem = elem
		}
		return out, err
	}
}

func free(*call, []Value) int64 { return 0 }

func perOutput(_ *call, out []Value) int64 { return out[0].Elements() }

func perInput(c *call, _ []Value) int64 { return c.in(0).Elements() }
