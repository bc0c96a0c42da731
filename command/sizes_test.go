package command

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// writeFree writes a model that answers an image of any size with itself.
func writeFree(t *testing.T) (file string) {
	t.Helper()
	return writeIdentity(t, onnxpb.TensorProto_FLOAT, "batch", "", "height", "width")
}

// writeIdentity writes a model that answers a tensor of these dimensions with itself; "" is 3.
func writeIdentity(t *testing.T, elements onnxpb.TensorProto_DataType, dimensions ...string) (file string) {
	t.Helper()
	info := func(name string) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range dimensions {
			one := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}}
			if d == "" {
				one.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 3}
			}
			shape.Dim = append(shape.Dim, one)
		}
		return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(elements)), Shape: shape}}}}
	}
	m, err := model.FromProto(&onnxpb.ModelProto{
		IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}},
		Graph: &onnxpb.GraphProto{
			Name: proto.String("free"), Input: []*onnxpb.ValueInfoProto{info("image")}, Output: []*onnxpb.ValueInfoProto{info("same")},
			Node: []*onnxpb.NodeProto{{OpType: proto.String("Identity"), Input: []string{"image"}, Output: []string{"same"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "free.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A model of strings is checked, and gets a verdict after its upload, as it is deployed: it is measured as a whole.
func TestCheckOfStrings(t *testing.T) {
	file := writeIdentity(t, onnxpb.TensorProto_STRING, "batch", "")
	for _, how := range []string{"--json", "--verdict"} {
		out, err := execute(t, "model", "check", file, "--slo", "1m", "--max-batch", "2", "--prepared", t.TempDir(), "--database", filepath.Join(t.TempDir(), "o.jsonl"), how)
		if err != nil || !strings.Contains(out, "{") {
			t.Errorf("%s: %s, %v", how, out, err)
		}
	}
}

// Instances know the sizes that the deployment states.
func TestInstancesAreToldTheSizes(t *testing.T) {
	var f ProviderFlags
	spec := cluster.InstanceSpec{Function: "bert.openfaas-fn", Artefact: cluster.Artefact{Shapes: "ids:1x64", MaxShapes: "ids:1x512"}}
	argv := strings.Join(f.InstanceArguments(spec, "unix:///s"), " ")
	if !strings.Contains(argv, "--shapes ids:1x64 --max-shapes ids:1x512") {
		t.Errorf("it is started with %s", argv)
	}
	var read profile.SizeFlags
	read.Usual, _ = tensor.ParseShapes("ids:1x64")
	read.Largest, _ = tensor.ParseShapes("ids:1x512")
	if got := strings.Join(read.Arguments(), " "); !strings.Contains(argv, got) {
		t.Errorf("it passes on %s", got)
	}
}

func TestShowSized(t *testing.T) {
	file := writeFree(t)
	out, err := execute(t, "model", "show", file, "--shapes", "image:1x3x32x16", "--json")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), ""), "[1,3,32,16]") {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := execute(t, "instance", "prepare", "--model", file, "--cache", t.TempDir(), "--shapes", "image:1x3"); err == nil || !strings.Contains(err.Error(), "--shapes: the input") {
		t.Errorf("prepared with another rank: %v", err)
	}
}

// The size of a function's images is that of its model's free dimensions.
func TestImagesGiveShapes(t *testing.T) {
	file := writeFree(t)
	tried := profile.TryFlags{ImageForm: "320x240 fit=crop"}
	if got, err := tried.Shapes(file, nil); err != nil || got.String() != "image:1x3x240x320" {
		t.Errorf("the child takes %v, %v", got, err)
	}
	given := tensor.Shapes{"image": {1, 3, 8, 8}}
	if got, err := tried.Shapes(file, given); err != nil || got.String() != given.String() {
		t.Errorf("the child takes %v instead of the given shapes, %v", got, err)
	}
}
