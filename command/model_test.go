package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// runModel runs "faas-infer model" with the given arguments.
func runModel(args ...string) (string, error) {
	c := newModelCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestModelMakeShowBundle(t *testing.T) {
	t.Chdir(t.TempDir())
	if out, err := runModel("make", "mnist", "--seed", "2"); err != nil || !strings.Contains(out, "Wrote mnist.onnx") {
		t.Fatalf("%s, %v", out, err)
	}
	out, err := runModel("show", "mnist.onnx", "--batch", "8")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"Gemm", "8×2048", "parameters  3247050, 12.4 MiB", "Table 1     72k", "input       image FP32 8×1×28×28"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	if out, err := runModel("bundle", "mnist.onnx", "--root", "bundles", "--image", "team/mnist:v1"); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	b, err := bundle.Open("bundles", "team/mnist:v1")
	if err != nil || b.Name != "mnist" || b.Description == "" {
		t.Errorf("%+v, %v", b, err)
	}
	if out, err := runModel("bundle", "identity", "--root", "bundles", "--image", "identity", "--description", "nothing"); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	if b, err := bundle.Open("bundles", "identity:latest"); err != nil || b.Description != "nothing" {
		t.Errorf("%+v, %v", b, err)
	}
}

// The list has the large models, with their sizes, and costs no weights.
func TestModelMakeList(t *testing.T) {
	out, err := runModel("make", "--list")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"resnet-50 ", "97.7 MiB", "wrn-50-5 ", "2275.5 MiB", "rnn-N has N layers"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
}

func TestModelShowJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	if _, err := runModel("make", "dssm", "--out", path); err != nil {
		t.Fatal(err)
	}
	out, err := runModel("show", path, "--json", "-b", "4")
	if err != nil {
		t.Fatal(err)
	}
	var g model.Graph
	if err := json.Unmarshal([]byte(out), &g); err != nil {
		t.Fatal(err)
	}
	if g.Batch != 4 || g.Outputs[0].Shape[0] != 4 || len(g.Operators) == 0 {
		t.Errorf("%+v", g)
	}
}

// saved writes a SavedModel of one Relu and no variables, with signatures of
// these names.
func saved(t *testing.T, dir string, signatures ...string) {
	t.Helper()
	info := func(tensor string) *tensorflowpb.TensorInfo {
		dims := []*tensorflowpb.TensorShapeProto_Dim{{Size: -1}, {Size: 3}}
		return &tensorflowpb.TensorInfo{
			Encoding: &tensorflowpb.TensorInfo_Name{Name: tensor}, Dtype: tensorflowpb.DataType_DT_FLOAT,
			TensorShape: &tensorflowpb.TensorShapeProto{Dim: dims},
		}
	}
	graph := &tensorflowpb.MetaGraphDef{
		MetaInfoDef:  &tensorflowpb.MetaGraphDef_MetaInfoDef{Tags: []string{"serve"}},
		SignatureDef: map[string]*tensorflowpb.SignatureDef{},
	}
	for _, name := range signatures {
		graph.SignatureDef[name] = &tensorflowpb.SignatureDef{
			Inputs:  map[string]*tensorflowpb.TensorInfo{"x": info("in:0")},
			Outputs: map[string]*tensorflowpb.TensorInfo{"y": info("rectify:0")},
		}
	}
	b, err := proto.Marshal(&tensorflowpb.SavedModel{MetaGraphs: []*tensorflowpb.MetaGraphDef{graph}})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "saved_model.pb"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestModelShowSavedModel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lstm", "3")
	saved(t, dir, "serving_default", "other")
	out, err := runModel("show", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"lstm: signature serving_default of other, serving_default", "input       x FP32 ?×3", "output      y FP32 ?×3", "model convert " + dir} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	if strings.Contains(out, "Table 1") {
		t.Errorf("a model of somebody's own is taken for the zoo's:\n%s", out)
	}
	if out, err := runModel("show", dir, "--signature", "other", "--json"); err != nil || !strings.Contains(out, `"signature": "other"`) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestModelErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("text.onnx", []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	saved(t, "two", "a", "b")
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, words string }{
		{"make", "resnet-50"},
		{"make gpt", "resnet-50"},
		{"show mnist", "faas-infer model make mnist"},
		{"show text.onnx", "not an ONNX model"},
		{"show absent.onnx", "absent.onnx"},
		{"show .", "give that directory"},
		{"show empty", "tf.saved_model.save"},
		{"show two", "name one of them (--signature)"},
		{"show two --signature c", `there is no "c"; the model has a, b (--signature)`},
		{"show text.onnx --signature a", "which is a directory"},
		{"bundle mnist", "image"},
		{"bundle nothing --image a", "neither a file nor a model of the zoo"},
		{"bundle identity --image ../a", "invalid image name"},
	} {
		if _, err := runModel(strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("model %s: got %v, want %q", test.args, err, test.words)
		}
	}
}

// Each command's help has an example to copy.
func TestModelHelpHasExamples(t *testing.T) {
	for _, command := range []string{"", "make", "show"} {
		out, err := runModel(append(strings.Fields(command), "--help")...)
		if err != nil || !strings.Contains(out, "Examples:\n  faas-infer model") {
			t.Errorf("model %s --help: %v\n%s", command, err, out)
		}
	}
}
