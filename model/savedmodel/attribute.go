package savedmodel

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel/rules"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// attributes are a node's as ONNX has them, sorted by name: booleans are 0 and
// 1, element types ONNX's, functions their names, shapes lists with -1 for what
// is not known. Left out are those that have the operator's default, as newer
// files do it, and those that begin with an underscore: they are notes for
// TensorFlow's own passes.
func attributes(all, defaults map[string]*pb.AttrValue) []*onnxpb.AttributeProto {
	var out []*onnxpb.AttributeProto
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "_") || proto.Equal(all[name], defaults[name]) {
			continue
		}
		if a := attribute(all[name]); a != nil {
			a.Name = proto.String(name)
			out = append(out, a)
		}
	}
	return out
}

// attribute is nil for a value that is a placeholder or empty.
func attribute(v *pb.AttrValue) *onnxpb.AttributeProto {
	switch v := v.GetValue().(type) {
	case *pb.AttrValue_S:
		return &onnxpb.AttributeProto{S: v.S, Type: onnxpb.AttributeProto_STRING.Enum()}
	case *pb.AttrValue_F:
		return &onnxpb.AttributeProto{F: &v.F, Type: onnxpb.AttributeProto_FLOAT.Enum()}
	case *pb.AttrValue_I:
		return number(v.I)
	case *pb.AttrValue_B:
		return number(truth(v.B))
	case *pb.AttrValue_Type:
		return number(int64(rules.Element(v.Type)))
	case *pb.AttrValue_Shape:
		return numbers(rules.Shape(v.Shape))
	case *pb.AttrValue_Func:
		return &onnxpb.AttributeProto{S: []byte(v.Func.GetName()), Type: onnxpb.AttributeProto_STRING.Enum()}
	case *pb.AttrValue_List:
		return list(v.List)
	}
	return nil
}

// list is one of whatever kind the list has; an empty one is of numbers.
func list(v *pb.AttrValue_ListValue) *onnxpb.AttributeProto {
	var ints []int64
	switch {
	case len(v.GetF()) > 0:
		return &onnxpb.AttributeProto{Floats: v.GetF(), Type: onnxpb.AttributeProto_FLOATS.Enum()}
	case len(v.GetS()) > 0:
		return &onnxpb.AttributeProto{Strings: v.GetS(), Type: onnxpb.AttributeProto_STRINGS.Enum()}
	case len(v.GetFunc()) > 0:
		a := &onnxpb.AttributeProto{Type: onnxpb.AttributeProto_STRINGS.Enum()}
		for _, f := range v.GetFunc() {
			a.Strings = append(a.Strings, []byte(f.GetName()))
		}
		return a
	case len(v.GetI()) > 0:
		return numbers(v.GetI())
	}
	for _, b := range v.GetB() {
		ints = append(ints, truth(b))
	}
	for _, t := range v.GetType() {
		ints = append(ints, int64(rules.Element(t)))
	}
	for _, s := range v.GetShape() {
		dims := rules.Shape(s)
		ints = append(append(ints, int64(len(dims))), dims...)
	}
	return numbers(ints)
}

func number(v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{I: &v, Type: onnxpb.AttributeProto_INT.Enum()}
}

func numbers(v []int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Ints: v, Type: onnxpb.AttributeProto_INTS.Enum()}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
