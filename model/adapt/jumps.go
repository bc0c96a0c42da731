package adapt

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Jumps reports whether the graph has an operator whose answer jumps at zero: for it, a number
// too small for full precision is not zero. It is a logarithm, a sign, or a comparison with zero.
func (n *Natural) Jumps() bool { return jumps(n.Model.Proto().GetGraph(), nil) }

func jumps(g *onnxpb.GraphProto, outside []string) bool {
	zeros := append(slices.Clip(outside), zerosOf(g)...)
	return slices.ContainsFunc(g.GetNode(), func(node *onnxpb.NodeProto) bool {
		switch node.GetOpType() {
		case "Log", "Sign", "NonZero":
			return true
		case "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual":
			if slices.ContainsFunc(node.GetInput(), func(name string) bool { return slices.Contains(zeros, name) }) {
				return true
			}
		}
		return slices.ContainsFunc(node.GetAttribute(), func(a *onnxpb.AttributeProto) bool { return a.GetG() != nil && jumps(a.GetG(), zeros) })
	})
}

// zerosOf lists the graph's constants that are one floating-point zero, or denormal.
func zerosOf(g *onnxpb.GraphProto) (names []string) {
	for _, t := range g.GetInitializer() {
		if isZero(t) {
			names = append(names, t.GetName())
		}
	}
	for _, node := range g.GetNode() {
		for _, a := range node.GetAttribute() {
			zero := a.GetName() == "value" && isZero(a.GetT()) || a.GetName() == "value_float" && math.Abs(float64(a.GetF())) < smallest
			if node.GetOpType() == "Constant" && zero {
				names = append(names, node.GetOutput()...)
			}
		}
	}
	return names
}

// smallest is the smallest number of 32 bits that has full precision.
const smallest = 0x1p-126

func isZero(t *onnxpb.TensorProto) bool {
	for _, d := range t.GetDims() {
		if d != 1 {
			return false
		}
	}
	raw, v := t.GetRawData(), 1.0
	switch floats, doubles := t.GetFloatData(), t.GetDoubleData(); {
	case t.GetDataType() == int32(onnxpb.TensorProto_FLOAT) && len(raw) == 4:
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	case t.GetDataType() == int32(onnxpb.TensorProto_DOUBLE) && len(raw) == 8:
		v = math.Float64frombits(binary.LittleEndian.Uint64(raw))
	case len(floats) == 1:
		v = float64(floats[0])
	case len(doubles) == 1:
		v = doubles[0]
	}
	return math.Abs(v) < smallest
}
