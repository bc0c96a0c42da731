package rules

import (
	"github.com/faas-infer/faas-infer/model/onnxpb"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

var elements = map[pb.DataType]onnxpb.TensorProto_DataType{
	pb.DataType_DT_FLOAT:      onnxpb.TensorProto_FLOAT,
	pb.DataType_DT_DOUBLE:     onnxpb.TensorProto_DOUBLE,
	pb.DataType_DT_HALF:       onnxpb.TensorProto_FLOAT16,
	pb.DataType_DT_BFLOAT16:   onnxpb.TensorProto_BFLOAT16,
	pb.DataType_DT_INT8:       onnxpb.TensorProto_INT8,
	pb.DataType_DT_INT16:      onnxpb.TensorProto_INT16,
	pb.DataType_DT_INT32:      onnxpb.TensorProto_INT32,
	pb.DataType_DT_INT64:      onnxpb.TensorProto_INT64,
	pb.DataType_DT_UINT8:      onnxpb.TensorProto_UINT8,
	pb.DataType_DT_UINT16:     onnxpb.TensorProto_UINT16,
	pb.DataType_DT_UINT32:     onnxpb.TensorProto_UINT32,
	pb.DataType_DT_UINT64:     onnxpb.TensorProto_UINT64,
	pb.DataType_DT_QINT8:      onnxpb.TensorProto_INT8,
	pb.DataType_DT_QUINT8:     onnxpb.TensorProto_UINT8,
	pb.DataType_DT_QINT16:     onnxpb.TensorProto_INT16,
	pb.DataType_DT_QUINT16:    onnxpb.TensorProto_UINT16,
	pb.DataType_DT_QINT32:     onnxpb.TensorProto_INT32,
	pb.DataType_DT_BOOL:       onnxpb.TensorProto_BOOL,
	pb.DataType_DT_STRING:     onnxpb.TensorProto_STRING,
	pb.DataType_DT_COMPLEX64:  onnxpb.TensorProto_COMPLEX64,
	pb.DataType_DT_COMPLEX128: onnxpb.TensorProto_COMPLEX128,
}

// reference is what the type of a reference to a variable is above the
// variable's.
const reference = 100

// Element is ONNX's name of an element type; that of a resource, a variant or
// one that is not known is UNDEFINED.
func Element(t pb.DataType) onnxpb.TensorProto_DataType {
	if t > reference {
		t -= reference
	}
	return elements[t]
}
