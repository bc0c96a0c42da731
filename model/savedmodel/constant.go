package savedmodel

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
	"github.com/faas-infer/faas-infer/model/savedmodel/rules"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// maxSpread is the most elements of a constant that are written out where the
// file gives a value once for all of them.
const maxSpread = 4096

// variables are the operators that hold one.
var variables = map[string]bool{"VarHandleOp": true, "VariableV2": true, "Variable": true, "VariableSharedV2": true}

// variable is what a node that holds one stands for: a tensor whose data is in
// another file.
func variable(n *flow.Node) known {
	attributes := n.Def.GetAttr()
	elem := rules.Element(attributes["dtype"].GetType())
	v := known{Value: rules.Value{Value: shape.Value{Elem: elem, Shape: rules.Shape(attributes["shape"].GetShape())}}}
	v.Constant = &onnxpb.TensorProto{
		Name: &n.Def.Name, DataType: proto.Int32(int32(elem)), DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
	}
	if v.Elements() >= 0 {
		v.Constant.Dims = v.Shape
	}
	return v
}

// constant is a Const node's tensor as ONNX has it, without its data if that is
// not at hand.
func constant(def *pb.NodeDef) *onnxpb.TensorProto {
	t := def.GetAttr()["value"].GetTensor()
	elem := rules.Element(t.GetDtype())
	out := &onnxpb.TensorProto{Name: &def.Name, Dims: rules.Shape(t.GetTensorShape()), DataType: proto.Int32(int32(elem))}
	n := shape.Value{Shape: out.Dims}.Elements()
	size := elementSize(elem)
	switch raw := t.GetTensorContent(); {
	case elem == onnxpb.TensorProto_STRING || elem == onnxpb.TensorProto_UNDEFINED:
	case n >= 0 && n <= math.MaxInt64/size && int64(len(raw)) == n*size && n > 0:
		out.RawData = raw
		return out
	case n > 0 && n <= maxSpread:
		if out.RawData = spread(t, int(n), int(size)); out.RawData != nil {
			return out
		}
	case n == 0:
		return out
	}
	out.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	return out
}

// spread writes out values of which the file leaves out the last ones that are
// the same; nil if it has none of that type.
func spread(t *pb.TensorProto, n, size int) []byte {
	each := elements(t)
	if len(each) == 0 || len(each) > n {
		return nil
	}
	var raw []byte
	for i := range n {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], each[min(i, len(each)-1)])
		raw = append(raw, b[:min(size, 8)]...)
	}
	return raw
}

// elements are a tensor's values, the bits of each in the low bytes.
func elements(t *pb.TensorProto) (bits []uint64) {
	for _, v := range t.GetFloatVal() {
		bits = append(bits, uint64(math.Float32bits(v)))
	}
	for _, v := range t.GetDoubleVal() {
		bits = append(bits, math.Float64bits(v))
	}
	for _, v := range t.GetIntVal() {
		bits = append(bits, uint64(int64(v)))
	}
	for _, v := range t.GetInt64Val() {
		bits = append(bits, uint64(v))
	}
	for _, v := range t.GetBoolVal() {
		bit := uint64(0)
		if v {
			bit = 1
		}
		bits = append(bits, bit)
	}
	for _, v := range t.GetHalfVal() {
		bits = append(bits, uint64(v))
	}
	for _, v := range t.GetUint32Val() {
		bits = append(bits, uint64(v))
	}
	return append(bits, t.GetUint64Val()...)
}
