package command

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	serve := helperCommand("instance", "--model", file, "--name", "photos.openfaas-fn", "--max-batch", "2",
		"--image", "32x32", "--listen", "tcp://"+address)
	startUntilReady(t, serve)
	python := clientsPython(t)
	if out, err := exec.Command(python, "testdata/clients.py", "http://"+address, "photos").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	payloadsOfTheGuide(t, python, address)
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

// guideFiles writes the files that the guide's commands send.
const guideFiles = `import json, numpy
from PIL import Image
batch = numpy.random.default_rng(1).random((2, 3, 32, 32), numpy.float32)
numpy.save("batch.npy", batch)
batch.tofile("batch.raw")
json.dump({"instances": batch.tolist()}, open("request.json", "w"))
image = Image.fromarray((batch[0] * 255).astype(numpy.uint8).transpose(1, 2, 0)).resize((64, 48))
image.save("cat.jpg")
image.save("dog.png")
`

var guideBlocks = regexp.MustCompile("(?s)```(sh|python)\n(.*?)```")

// payloadsOfTheGuide runs every command of docs/payloads.md, at the instance in
// the place of the gateway.
func payloadsOfTheGuide(t *testing.T, python, address string) {
	t.Helper()
	const function = "127.0.0.1:8080/function/photos"
	dir := t.TempDir()
	run := func(name string, arguments ...string) {
		t.Helper()
		c := exec.Command(name, arguments...)
		c.Dir = dir
		c.Env = append(os.Environ(), "URL=http://"+address)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arguments[len(arguments)-1], err, out)
		}
	}
	run(python, "-c", guideFiles)
	text, err := os.ReadFile("../docs/payloads.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := guideBlocks.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 8 {
		t.Errorf("the guide has %d commands", len(blocks))
	}
	for _, b := range blocks {
		code := strings.ReplaceAll(b[2], function, address)
		if b[1] == "sh" {
			run("bash", "-euo", "pipefail", "-c", code)
		} else {
			run(python, "-c", code)
		}
	}
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
