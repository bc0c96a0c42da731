package command

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// TestRealClients has Triton's Python client, requests and NumPy ask an instance,
// a process with the real engine, in every form that it takes.
func TestRealClients(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "same.onnx")
	writeSame(t, file)
	address := freeAddress(t)
	serve := helperCommand("instance", "--model", file, "--name", "same.openfaas-fn", "--max-batch", "2",
		"--image", "32x32", "--listen", "tcp://"+address)
	startUntilReady(t, serve)
	clients(t, "http://"+address, "same")
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = serve.Wait() // It was killed.
}

// clients runs testdata/clients.py against a model that answers with its input.
func clients(t *testing.T, url, name string) {
	t.Helper()
	environment := exec.Command("../scripts/python.sh", "python", filepath.Join(mustAbsolute(t, "testdata"), "clients.txt"))
	environment.Stderr = os.Stderr
	python, err := environment.Output()
	if err != nil {
		t.Fatalf("the clients' Python environment: %v", err)
	}
	out, err := exec.Command(strings.TrimSpace(string(python)), "testdata/clients.py", url, name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
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

// freeAddress is one of this machine at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
