package adapt

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// flatten makes tensors of outputs that are none, and reports whether there were any. A
// ZipMap's map of classes becomes the probabilities, one column a class in the classes'
// order. A sequence of tensors becomes one tensor with a new first dimension, if they have one
// shape.
func flatten(p *onnxpb.ModelProto) (changed bool, err error) {
	g := p.Graph
	for i, v := range g.GetOutput() {
		sequence := v.GetType().GetSequenceType()
		switch {
		case v.GetType().GetTensorType() != nil:
			continue
		case sequence.GetElemType().GetTensorType() != nil:
			stack(p, i, sequence.GetElemType().GetTensorType())
		case zipMap(g, v.GetName()) != nil:
			unzip(p, i, zipMap(g, v.GetName()))
		default:
			return false, fmt.Errorf("output %q is not a tensor, a sequence of tensors or the map of a ZipMap; export the model with tensors as its outputs", v.GetName())
		}
		changed = true
	}
	return changed, nil
}

// localise gives a StringNormalizer that names no locale the one that each machine has, and reports
// whether there was one. Its default is American English, which images for containers lack; the
// letters of both have the same capitals.
func localise(g *onnxpb.GraphProto) (changed bool) {
	for _, n := range g.GetNode() {
		named := slices.ContainsFunc(n.GetAttribute(), func(a *onnxpb.AttributeProto) bool { return a.GetName() == "locale" })
		if n.GetOpType() == "StringNormalizer" && !named {
			n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: proto.String("locale"), Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte("C.UTF-8")})
			changed = true
		}
	}
	return changed
}

// zipMap is the ZipMap that computes a value, nil if none does.
func zipMap(g *onnxpb.GraphProto, name string) *onnxpb.NodeProto {
	for _, n := range g.GetNode() {
		if n.GetOpType() == "ZipMap" && len(n.GetOutput()) == 1 && n.GetOutput()[0] == name && len(n.GetInput()) == 1 {
			return n
		}
	}
	return nil
}

// unzip replaces a ZipMap by its input.
func unzip(p *onnxpb.ModelProto, output int, n *onnxpb.NodeProto) {
	v := p.Graph.Output[output]
	opset(p)
	n.OpType, n.Domain, n.Attribute = proto.String("Identity"), proto.String(""), nil
	v.Type = tensorOf(&onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT))})
}

// stacked ends the name of the node that makes one tensor of a sequence.
const stacked = "@stacked"

// stack puts the tensors of a sequence behind each other.
func stack(p *onnxpb.ModelProto, output int, element *onnxpb.TypeProto_Tensor) {
	v := p.Graph.Output[output]
	to := v.GetName() + stacked
	p.Graph.Node = append(p.Graph.Node, &onnxpb.NodeProto{
		OpType: proto.String("ConcatFromSequence"), Name: proto.String(to), Input: []string{v.GetName()}, Output: []string{to},
		Attribute: []*onnxpb.AttributeProto{integer("axis", 0), integer("new_axis", 1)},
	})
	rename(p.Graph, v, to)
	v.Type = tensorOf(&onnxpb.TypeProto_Tensor{ElemType: element.ElemType})
}

// rename gives the value of an output that is a sequence the name of its stacked form, so
// that clients see the output's own name.
func rename(g *onnxpb.GraphProto, v *onnxpb.ValueInfoProto, to string) {
	own, sequence := v.GetName(), v.GetName()+"@sequence"
	for _, n := range g.Node {
		for i, name := range n.Output {
			switch name {
			case own:
				n.Output[i] = sequence
			case to:
				n.Output[i] = own
			}
		}
		for i, name := range n.Input {
			if name == own {
				n.Input[i] = sequence
			}
		}
	}
}

func tensorOf(t *onnxpb.TypeProto_Tensor) *onnxpb.TypeProto {
	return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: t}}
}

func integer(name string, value int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(value)}
}
