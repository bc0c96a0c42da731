package children

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

// writeOdd writes a model x[?,?] → y[?,7,3]: it runs with a length of 21 only, which nobody guesses.
func writeOdd(t *testing.T) string {
	t.Helper()
	value := func(name string, dims ...int64) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for i, d := range dims {
			one := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}}
			if d < 0 {
				one.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: []string{"batch", "length"}[i]}
			}
			shape.Dim = append(shape.Dim, one)
		}
		return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: shape}}}}
	}
	m, err := model.FromProto(&onnxpb.ModelProto{
		IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(13)}},
		Graph: &onnxpb.GraphProto{
			Name: proto.String("odd"), Input: []*onnxpb.ValueInfoProto{value("x", -1, -1)}, Output: []*onnxpb.ValueInfoProto{value("y", -1, 7, 3)},
			Initializer: []*onnxpb.TensorProto{{Name: proto.String("shape"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{3}, Int64Data: []int64{0, 7, 3}}},
			Node:        []*onnxpb.NodeProto{{OpType: proto.String("Reshape"), Input: []string{"x", "shape"}, Output: []string{"y"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "odd.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A model that runs with one size only takes it from a request, in any of the clients' formats.
func TestSizesAreLearntFromARequest(t *testing.T) {
	file, m := writeOdd(t), &Models{Config: Config{Prepared: t.TempDir()}}
	if err := m.Check(t.Context(), file, func(string) bool { return false }); !errors.Is(err, latency.ErrNoSizes) {
		t.Fatalf("a check says %v", err)
	}
	post := func(path, body string) *frame.Request {
		return &frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	}
	numbers := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0.5,", n), ",") + "]" }
	for _, c := range []struct {
		r      *frame.Request
		status int
		want   string
	}{
		{post("/", `{"instances": [`+numbers(20)+`]}`), 400, "the model does not run with the sizes of this request, x:1x20: "},
		{post("/", `{"instances": [`+numbers(20)), 400, ""},
		{post("/v2/models/f/infer", `{"inputs": [{"name": "z", "shape": [1, 21], "datatype": "FP32", "data": `+numbers(21)+`}]}`), 400, `no input "z"`},
		{post("/v2/models/g/infer", `{}`), 404, ""},
		{&frame.Request{Method: http.MethodGet, Path: "/v2/models/f", Header: http.Header{}}, 503, "teaches"},
		{post("/v2/models/f/infer", `{"inputs": [{"name": "x", "shape": [2, 21], "datatype": "FP32", "data": `+numbers(42)+`}]}`), 0, "x:1x21"},
	} {
		shapes, err := m.Learn(t.Context(), file, "f.openfaas-fn", "", c.r)
		var answer *web.Error
		switch {
		case c.status == 0:
			if err != nil || shapes != c.want {
				t.Errorf("%s: learnt %q, %v", c.r.Path, shapes, err)
			}
		case !errors.As(err, &answer) || answer.Status != c.status || !strings.Contains(answer.Text, c.want):
			t.Errorf("%s: learnt %q, %v; want %d with %q", c.r.Path, shapes, err, c.status, c.want)
		}
	}
	sized := m.Sized(latency.Sizes{Shapes: "x:1x21"})
	if err := sized.Check(context.Background(), file, func(string) bool { return false }); err != nil {
		t.Errorf("with the learnt sizes: %v", err)
	}
}
