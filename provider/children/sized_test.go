package children

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// writeFree writes a model that answers an image of any size with itself.
func writeFree(t *testing.T) (file string) {
	t.Helper()
	info := func(name string) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range []string{"batch", "", "height", "width"} {
			one := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d}}
			if d == "" {
				one.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 3}
			}
			shape.Dim = append(shape.Dim, one)
		}
		return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: shape}}}}
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

// Sizes that contradict the model are the deployment's fault.
func TestShapesAreCheckedWithTheModel(t *testing.T) {
	file, m := writeFree(t), &Models{Config: Config{Prepared: t.TempDir()}}
	check := func(s latency.Sizes) error {
		return m.Sized(s).Check(context.Background(), file, func(string) bool { return false })
	}
	if err := check(latency.Sizes{Shapes: "image:1x3x320x240", Max: "image:1x3x640x640", Image: "32x32"}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		sizes    latency.Sizes
		key, why string
	}{
		{latency.Sizes{Shapes: "picture:1x3x8x8"}, annotation.InferShapes, `is "picture:1x3x8x8": the model has no input "picture"; name one of [image]`},
		{latency.Sizes{Shapes: "image:1x4x8x8"}, annotation.InferShapes, "is fixed at 3"},
		{latency.Sizes{Max: "image:1x3x8"}, annotation.InferMaxShapes, "has 4 dimensions, [-1 3 -1 -1], and its shape here has 3"},
	} {
		err := check(c.sizes)
		if wrong := new(annotation.Error); !errors.As(err, &wrong) || wrong.Key != c.key || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v, want an Error of %s that says %q", c.sizes, err, c.key, c.why)
		}
	}
}

// A child is told the sizes that the deployment states, otherwise those of its images.
func TestImagesGiveShapes(t *testing.T) {
	file, m := writeFree(t), &Models{}
	for want, sizes := range map[string]latency.Sizes{
		"--image-form 320x240 fit=crop":                     {Image: "320x240 fit=crop"},
		"--shapes image:1x3x8x8 --max-shapes image:1x3x9x9": {Image: "320x240", Shapes: "image:1x3x8x8", Max: "image:1x3x9x9"},
		"": {},
	} {
		if got := strings.Join(sizedModels{m, sizes}.arguments(file), " "); got != want {
			t.Errorf("%+v: %q, want %q", sizes, got, want)
		}
	}
}

// The text of a child says that no sizes were found, whatever it was doing.
func TestNoSizes(t *testing.T) {
	for text, want := range map[string]string{
		"preparing m.onnx: no sizes found: tried 16": "no sizes found: tried 16", "no sizes found: tried 32": "no sizes found: tried 32",
	} {
		if err := asNoSizes(errors.New(text)); !errors.Is(err, latency.ErrNoSizes) || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := asNoSizes(errors.New("killed by signal 9")); errors.Is(err, latency.ErrNoSizes) {
		t.Errorf("%v has no sizes", err)
	}
}
