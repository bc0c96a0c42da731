package savedmodel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
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

// port is one input or output of a signature.
type port struct {
	// key is its name for callers, tensor its name in the graph.
	key, tensor string
	kind        pb.DataType
	shape       *pb.TensorShapeProto
}

// ports are a signature's inputs or outputs, sorted by name, because the file does
// not order them.
func ports(infos map[string]*pb.TensorInfo) ([]port, error) {
	var all []port
	for _, key := range slices.Sorted(maps.Keys(infos)) {
		info := infos[key]
		if info.GetName() == "" {
			return nil, fmt.Errorf("%w: %q is sparse, ragged or empty; save the model with a signature of dense tensors", ErrSignature, key)
		}
		all = append(all, port{key, info.GetName(), info.GetDtype(), info.GetTensorShape()})
	}
	return all, nil
}

func tensors(ports []port) []string {
	var names []string
	for _, p := range ports {
		names = append(names, p.tensor)
	}
	return names
}
