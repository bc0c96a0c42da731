package onnxruntime

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(zooFile(t, "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options Options
		wrong   string
	}{
		"no file":    {Options{Model: filepath.Join(folder, "none.onnx"), Threads: 1}, "none.onnx"},
		"not ONNX":   {Options{Model: write("text.onnx", []byte("hello")), Threads: 1}, "ONNX Runtime: "},
		"cut off":    {Options{Model: write("cut.onnx", whole[:len(whole)/2]), Threads: 1}, "ONNX Runtime: "},
		"no threads": {Options{Model: write("whole.onnx", whole)}, "threads is 0; it must be at least 1"},
		"no batch":   {Options{Model: write("fixed.onnx", fixedModel(t)), Threads: 1}, `"x" has the shape [1 4]`},
	} {
		_, err := Open(c.options)
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
		if name == "no batch" && !errors.Is(err, model.ErrNoBatch) {
			t.Errorf("%s: %v is no ErrNoBatch", name, err)
		}
	}
}

// fixedModel is an identity of the fixed shape [1,4].
func fixedModel(t *testing.T) []byte {
	dimension := func(n int64) *onnxpb.TensorShapeProto_Dimension {
		return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}}
	}
	value := func(name string) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{
				ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)),
				Shape:    &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{dimension(1), dimension(4)}},
			}}}}
	}
	b, err := proto.Marshal(&onnxpb.ModelProto{
		IrVersion:   proto.Int64(8),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}},
		Graph: &onnxpb.GraphProto{
			Name:   proto.String("fixed"),
			Node:   []*onnxpb.NodeProto{{OpType: proto.String("Identity"), Input: []string{"x"}, Output: []string{"y"}}},
			Input:  []*onnxpb.ValueInfoProto{value("x")},
			Output: []*onnxpb.ValueInfoProto{value("y")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
