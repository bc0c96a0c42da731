package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// TestRealClients sends requests in every format with Triton's Python client, requests and
// NumPy to an instance, a process with the real engine. The end-to-end tests run the
// commands of docs/payloads.md.
func TestRealClients(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "same.onnx")
	writeSame(t, file)
	address := freeAddress(t)
	serve := helperCommand("instance", "--model", file, "--name", "photos.openfaas-fn", "--max-batch", "2",
		"--image", "32x32", "--listen", "tcp://"+address)
	startUntilReady(t, serve)
	python := clientsPython(t)
	if out, err := exec.Command(python, "testdata/clients.py", "http://"+address, "photos").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = serve.Wait() // It was killed.
}

// clientsPython is the Python of the environment with the clients.
func clientsPython(t *testing.T) string {
	t.Helper()
	environment := exec.Command("../scripts/python.sh", "python", filepath.Join(mustAbsolute(t, "testdata"), "clients.txt"))
	environment.Stderr = os.Stderr
	python, err := environment.Output()
	if err != nil {
		t.Fatalf("the clients' Python environment: %v", err)
	}
	return strings.TrimSpace(string(python))
}

func mustAbsolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// writeSame writes a model that answers images of 32x32 with themselves.
func writeSame(t *testing.T, file string) {
	t.Helper()
	info := func(name string) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
			{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "batch"}}}}
		for _, d := range []int64{3, 32, 32} {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
		return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: shape}}}}
	}
	m, err := model.FromProto(&onnxpb.ModelProto{
		IrVersion:   proto.Int64(8),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}},
		Graph: &onnxpb.GraphProto{
			Name: proto.String("same"), Input: []*onnxpb.ValueInfoProto{info("image")}, Output: []*onnxpb.ValueInfoProto{info("same")},
			Node: []*onnxpb.NodeProto{{OpType: proto.String("Identity"), Input: []string{"image"}, Output: []string{"same"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := engine.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
