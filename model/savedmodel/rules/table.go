package rules

var rules map[string]rule

// The table is filled here and not in its declaration because rules refer to
// the functions that refer to it.
func init() {
	rules = map[string]rule{
		"Conv2D":                      as(conv(2, false)),
		"_FusedConv2D":                as(conv(2, false)),
		"Conv3D":                      as(conv(3, false)),
		"DepthwiseConv2dNative":       as(conv(2, true)),
		"_FusedDepthwiseConv2dNative": as(conv(2, true)),
		"Conv2DBackpropInput":         {convBack(2), convBackCost},
		"Conv3DBackpropInputV2":       {convBack(3), convBackCost},
		"MaxPool":                     as(pool("MaxPool", 2)),
		"AvgPool":                     as(pool("AveragePool", 2)),
		"MaxPool3D":                   as(pool("MaxPool", 3)),
		"AvgPool3D":                   as(pool("AveragePool", 3)),
		"SpaceToDepth":                as(blocks("SpaceToDepth")),
		"DepthToSpace":                as(blocks("DepthToSpace")),
		"SpaceToBatchND":              {spaceToBatch(false), free},
		"BatchToSpaceND":              {spaceToBatch(true), free},
		"MatMul":                      as(matMul),
		"_FusedMatMul":                as(matMul),
		"Einsum":                      {einsumShape, einsumCost},
		"CudnnRNN":                    {cudnnRNN, cudnnCost},
		"Transpose":                   as(transpose),
		"Reshape":                     as(reshape),
		"Squeeze":                     as(squeeze),
		"ExpandDims":                  as(expandDims),
		"ConcatV2":                    as(along("Concat", -1)),
		"Concat":                      as(along("Concat", 0)),
		"Split":                       as(split),
		"SplitV":                      as(splitSizes),
		"Pack":                        {pack, free},
		"Unpack":                      {unpack, free},
		"StridedSlice":                {stridedSlice, free},
		"Slice":                       {cut, free},
		"GatherNd":                    as(gatherND),
		"OneHot":                      as(oneHot),
		"TopKV2":                      {topK, perInput},
		"ArgMax":                      as(along("ArgMax", 1, withInt("keepdims", 0))),
		"ArgMin":                      as(along("ArgMin", 1, withInt("keepdims", 0))),
		"Tile":                        as(same("Tile")),
		"Fill":                        {fill, free},
		"Range":                       as(same("Range")),
		"Cast":                        as(cast),
		"Shape":                       {shapesOf, free},
		"ShapeN":                      {shapesOf, free},
		"Size":                        {sizeOf, free},
		"DenseBincount":               {bincount, perInput},
		"Rank":                        {rank, free},
		"BroadcastTo":                 {sized(1), free},
		"Select":                      {selected, perOutput},
		"SelectV2":                    as(same("Where")),
		"Where":                       {nonZero, perInput},
		"FloorDiv":                    {floorDiv, perOutput},
		"AddN":                        as(addAll),
		"L2Loss":                      {scalarOf, perInput},
		"LookupTableFindV2":           {unary(1), perOutput},
		"CheckNumerics":               {first, perOutput},
		"TensorListReserve":           {reserve, free},
		"EmptyTensorList":             {emptyList, free},
		"TensorListFromTensor":        {fromTensor, free},
		"TensorListStack":             {stack, free},
		"TensorListGetItem":           {getItem, free},
		"TensorListSetItem":           {setItem, free},
		"TensorListPushBack":          {pushBack, free},
		"TensorListLength":            {listLength, free},
	}
	register(rule{batchNorm, perOutput}, "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx")
	register(rule{gather, free}, "Gather", "GatherV2", "ResourceGather")
	register(rule{pad, free}, "Pad", "PadV2", "MirrorPad")
	register(rule{resize, perOutput}, "ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea")
	register(rule{cudnnRNN, cudnnCost}, "CudnnRNNV2", "CudnnRNNV3")
	register(rule{sized(0), perOutput}, "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt",
		"StatelessRandomUniform", "StatelessRandomUniformV2", "StatelessRandomNormal", "StatelessRandomNormalV2")
	register(as(batchMatMul), "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
	register(rule{unary(0), free}, "ZerosLike", "OnesLike", "ReverseV2", "Reverse", "Roll", "ReverseSequence")
	register(rule{unary(0), perOutput}, "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
		"Exp", "Expm1", "Log", "Log1p", "Sqrt", "Rsqrt", "Square", "Sign", "Rint", "Reciprocal", "Inv", "Erf", "Erfc",
		"Softplus", "Softsign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
		"IsNan", "IsInf", "IsFinite", "ClipByValue", "Cumsum", "Cumprod", "BiasAdd", "BiasAddV1", "LRN", "Bucketize",
		"FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs", "Digamma", "Lgamma", "Print", "Invert")
	for theirs, ours := range map[string]string{"Neg": "Neg", "Abs": "Abs", "Floor": "Floor", "Ceil": "Ceil", "Round": "Round", "LogicalNot": "Not"} {
		rules[theirs] = as(sameOf(ours, 1))
	}
	for theirs, ours := range binary {
		rules[theirs] = as(sameOf(ours, 2))
	}
	for theirs, ours := range reductions {
		rules[theirs] = as(reduction(ours))
	}
}

// binary are the element-wise operators of two inputs; where ONNX lacks one,
// another one that broadcasts stands for it.
var binary = map[string]string{
	"Add": "Add", "AddV2": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div", "RealDiv": "Div",
	"TruncateDiv": "Div", "FloorMod": "Mod", "Maximum": "Max", "Minimum": "Min", "Pow": "Pow", "Less": "Less",
	"LessEqual": "LessOrEqual", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Equal": "Equal",
	"LogicalAnd": "And", "LogicalOr": "Or", "NotEqual": "Xor",
	"DivNoNan": "Pow", "MulNoNan": "Pow", "Mod": "Pow", "SquaredDifference": "Pow", "Xdivy": "Pow", "Xlogy": "Pow", "Atan2": "Pow",
	"BitwiseAnd": "BitShift", "BitwiseOr": "BitShift", "BitwiseXor": "BitShift",
}

var reductions = map[string]string{
	"Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd",
	"All": "ReduceMin", "Any": "ReduceMax", "EuclideanNorm": "ReduceL2",
}

func register(r rule, names ...string) {
	for _, name := range names {
		rules[name] = r
	}
}

func free(*Call, []Value) int64 { return 0 }

func perOutput(_ *Call, out []Value) int64 { return out[0].Elements() }

func perInput(c *Call, _ []Value) int64 { return c.in(0).Elements() }
