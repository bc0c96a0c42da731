package command

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/command/commandtest"
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
	serve := commandtest.Command("instance", "--model", file, "--name", "photos.openfaas-fn", "--max-batch", "2",
		"--image", "32x32", "--listen", "tcp://"+address)
	commandtest.UntilReady(t, serve)
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

// wordsGraph and halfGraph are the models of clients_strings.py.
const (
	wordsGraph = `
		node { op_type: "Identity" input: "s" output: "text" }
		node { op_type: "LabelEncoder" domain: "ai.onnx.ml" input: "s" output: "row"
			attribute { name: "keys_strings" type: STRINGS strings: "cat" strings: "dog" strings: "bird" }
			attribute { name: "values_int64s" type: INTS ints: 1 ints: 0 ints: 9 }
			attribute { name: "default_int64" type: INT i: 0 } }
		node { op_type: "Gather" input: "table" input: "row" output: "score" }
		initializer { name: "table" data_type: 1 dims: 2 dims: 3
			float_data: 0.25 float_data: 0.5 float_data: 0.125 float_data: 1 float_data: 2 float_data: 3 }
		input { name: "s" type { tensor_type { elem_type: 8 shape { dim { dim_param: "n" } } } } }
		output { name: "text" type { tensor_type { elem_type: 8 shape { dim { dim_param: "n" } } } } }
		output { name: "score" type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 3 } } } } }`
	halfGraph = `
		node { op_type: "Identity" input: "x" output: "y" }
		input { name: "x" type { tensor_type { elem_type: 16 shape { dim { dim_param: "n" } dim { dim_value: 2 } } } } }
		output { name: "y" type { tensor_type { elem_type: 16 shape { dim { dim_param: "n" } dim { dim_value: 2 } } } } }`
)

// TestRealClientsOfStrings sends strings, classification and bfloat16 with Triton's Python client and
// as TensorFlow Serving's clients do.
func TestRealClientsOfStrings(t *testing.T) {
	var urls []string
	for _, served := range []struct{ name, graph string }{{"words", wordsGraph}, {"half", halfGraph}} {
		name, graph := served.name, served.graph
		file := filepath.Join(t.TempDir(), name+".onnx")
		p := new(onnxpb.ModelProto)
		if err := prototext.Unmarshal([]byte(`ir_version: 8 opset_import { version: 17 } opset_import { domain: "ai.onnx.ml" version: 3 }
			graph { name: "g" `+graph+` }`), p); err != nil {
			t.Fatal(err)
		}
		m, err := model.FromProto(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.WriteFile(file), os.WriteFile(filepath.Join(filepath.Dir(file), "labels.txt"), []byte("cat\ndog\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		address := freeAddress(t)
		serve := commandtest.Command("instance", "--model", file, "--name", name, "--max-batch", "4", "--warm-up", "0s", "--listen", "tcp://"+address)
		commandtest.UntilReady(t, serve)
		t.Cleanup(func() {
			if err := serve.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = serve.Wait() // It was killed.
		})
		urls = append(urls, "http://"+address)
	}
	out, err := exec.Command(clientsPython(t), append([]string{"testdata/clients_strings.py"}, urls...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
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
