package model_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// dimensions declares an input: a positive number is a fixed size, a text a named free one.
func dimensions(name string, kind onnxpb.TensorProto_DataType, sizes ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, s := range sizes {
		d := &onnxpb.TensorShapeProto_Dimension{}
		switch s := s.(type) {
		case int:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(s)}
		case string:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: s}
		}
		shape.Dim = append(shape.Dim, d)
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(kind)), Shape: shape},
	}}}
}

// copying is a model that copies its inputs.
func copying(t *testing.T, inputs ...*onnxpb.ValueInfoProto) *model.Model {
	t.Helper()
	g := &onnxpb.GraphProto{Name: proto.String("copying"), Input: inputs}
	for _, in := range inputs {
		out := proto.CloneOf(in)
		out.Name = proto.String(in.GetName() + "_out")
		g.Output = append(g.Output, out)
		g.Node = append(g.Node, &onnxpb.NodeProto{Name: out.Name, OpType: proto.String("Identity"), Input: []string{in.GetName()}, Output: []string{out.GetName()}})
	}
	m, err := model.FromProto(&onnxpb.ModelProto{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}}, Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSized(t *testing.T) {
	const whole = onnxpb.TensorProto_INT64
	m := copying(t, dimensions("ids", whole, "b", "tokens"), dimensions("mask", whole, "b", "tokens"), dimensions("kind", whole, "b", "more", 2))
	sized, assumed, err := m.Sized(tensor.Shapes{"ids": {1, 256}})
	if err != nil {
		t.Fatal(err)
	}
	in := samples(t, sized, 3, 1)
	for name, want := range map[string][]int64{"ids": {3, 256}, "mask": {3, 256}, "kind": {3, 128, 2}} {
		if got := in[name].Shape; !slices.Equal(got, want) {
			t.Errorf("%s has the shape %v, want %v: given, of the same name, assumed", name, got, want)
		}
	}
	if len(assumed) != 1 || !strings.Contains(assumed[0], `input "kind" is dynamic and assumed to be 128`) {
		t.Errorf("assumed %q", assumed)
	}
	if g, err := sized.Graph(2); err != nil || !slices.Equal(g.Outputs[0].Shape, []int64{2, 256}) {
		t.Errorf("the graph's output is %+v, %v", g, err)
	}
	if before := m.Inputs()[0].Shape; !slices.Equal(before, []int64{-1, -1}) {
		t.Errorf("the model itself has changed: %v", before)
	}
	fixed := copying(t, dimensions("x", whole, "b", 3))
	if same, assumed, err := fixed.Sized(nil); same != fixed || assumed != nil || err != nil {
		t.Error("a model without free dimensions is not itself")
	}
}

func TestCheckShapes(t *testing.T) {
	m := copying(t, dimensions("x", onnxpb.TensorProto_FLOAT, "b", 3, "side"))
	if err := m.CheckShapes(tensor.Shapes{"x": {4, 3, 99}}); err != nil {
		t.Error(err)
	}
	for why, s := range map[string]tensor.Shapes{
		`the model has no input "y"; name one of [x]`:                                    {"y": {1, 3, 9}},
		`the input "x" has 3 dimensions, [-1 3 -1], and its shape here has 2`:            {"x": {1, 3}},
		`dimension 1 of the input "x" is fixed at 3, and its shape here says 4; write 3`: {"x": {1, 4, 9}},
	} {
		if err := m.CheckShapes(s); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v: %v, want %q", s, err, why)
		}
		if _, _, err := m.Sized(s); err == nil {
			t.Errorf("%v: no error", s)
		}
	}
}

func TestImageShapes(t *testing.T) {
	form := model.ImageForm{Width: 320, Height: 240}
	const float = onnxpb.TensorProto_FLOAT
	for name, c := range map[string]struct {
		inputs []*onnxpb.ValueInfoProto
		want   string
	}{
		"channels first": {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", 3, "h", "w")}, "x:1x3x240x320"},
		"channels last":  {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", "h", "w", 3)}, "x:1x240x320x3"},
		"all free":       {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", "c", "h", "w")}, "x:1x3x240x320"},
		"with a size":    {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", 1, "h", "w"), dimensions("size", float, "b", 2)}, "x:1x1x240x320"},
		"fixed":          {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", 3, 28, 28)}, ""},
		"two images":     {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", 3, "h", "w"), dimensions("y", float, "b", 3, "h", "w")}, ""},
		"text":           {[]*onnxpb.ValueInfoProto{dimensions("x", float, "b", "n")}, ""},
	} {
		if got := copying(t, c.inputs...).ImageShapes(form).String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
