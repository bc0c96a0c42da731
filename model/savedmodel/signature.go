package savedmodel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// byDefault is the signature that servers use unless a request names another.
const byDefault = "serving_default"

// signatures names the signatures that a caller can use, sorted. Names that begin
// with two underscores are TensorFlow's own.
func signatures(meta *pb.MetaGraphDef) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(meta.GetSignatureDef())) {
		if !strings.HasPrefix(name, "__") && len(meta.GetSignatureDef()[name].GetOutputs()) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// choose finds a signature by name. Without a name it takes the default or the only
// one.
func choose(meta *pb.MetaGraphDef, name string) (string, error) {
	names := signatures(meta)
	switch {
	case len(names) == 0:
		return "", fmt.Errorf("%w: the model has none; save it with signatures=", ErrSignature)
	case name != "" && slices.Contains(names, name):
		return name, nil
	case name != "":
		return "", fmt.Errorf("%w: there is no %q; the model has %s", ErrSignature, name, strings.Join(names, ", "))
	case slices.Contains(names, byDefault):
		return byDefault, nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", fmt.Errorf("%w: the model has %s and no %s; name one of them", ErrSignature, strings.Join(names, ", "), byDefault)
}

// infos are a signature's inputs or outputs, sorted by name, because the file does
// not order them.
func infos(all map[string]*pb.TensorInfo) ([]tensor.Info, error) {
	out := make([]tensor.Info, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		info := all[key]
		if info.GetName() == "" {
			return nil, fmt.Errorf("%w: %q is sparse, ragged or empty; save the model with a signature of dense tensors", ErrSignature, key)
		}
		out = append(out, tensor.Info{Name: key, Type: types[info.GetDtype()%reference], Shape: shape(info.GetTensorShape())})
	}
	return out, nil
}

// reference is added to the type of a reference to a variable, which TensorFlow 1 has.
const reference = 100

// types maps element types to their Open Inference name.
var types = map[pb.DataType]tensor.Type{
	pb.DataType_DT_FLOAT: tensor.FP32, pb.DataType_DT_DOUBLE: tensor.FP64, pb.DataType_DT_HALF: tensor.FP16,
	pb.DataType_DT_INT8: tensor.Int8, pb.DataType_DT_INT16: tensor.Int16, pb.DataType_DT_INT32: tensor.Int32,
	pb.DataType_DT_INT64: tensor.Int64, pb.DataType_DT_UINT8: tensor.Uint8, pb.DataType_DT_UINT16: tensor.Uint16,
	pb.DataType_DT_UINT32: tensor.Uint32, pb.DataType_DT_UINT64: tensor.Uint64, pb.DataType_DT_QINT8: tensor.Int8,
	pb.DataType_DT_QUINT8: tensor.Uint8, pb.DataType_DT_QINT16: tensor.Int16, pb.DataType_DT_QUINT16: tensor.Uint16,
	pb.DataType_DT_QINT32: tensor.Int32, pb.DataType_DT_BOOL: tensor.Bool, pb.DataType_DT_STRING: tensor.Bytes,
}

// maxRank is the maximum number of dimensions of a tensor.
const maxRank = 254

// shape is a shape in the file, nil if its rank is unknown.
func shape(s *pb.TensorShapeProto) []int64 {
	if s == nil || s.GetUnknownRank() || len(s.GetDim()) > maxRank {
		return nil
	}
	out := []int64{}
	for _, d := range s.GetDim() {
		out = append(out, max(d.GetSize(), -1))
	}
	return out
}
