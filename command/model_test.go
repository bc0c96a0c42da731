package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// runModel is `faas-infer model` with the given arguments.
func runModel(args ...string) (string, error) {
	c := NewModelCommand()
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

func TestModelErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("text.onnx", []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, words string }{
		{"make", "resnet-50"},
		{"make gpt", "resnet-50"},
		{"show mnist", "faas-infer model make mnist"},
		{"show text.onnx", "not an ONNX model"},
		{"show absent.onnx", "absent.onnx"},
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
	for _, command := range []string{"", "make", "show", "bundle"} {
		out, err := runModel(append(strings.Fields(command), "--help")...)
		if err != nil || !strings.Contains(out, "Examples:\n  faas-infer model") {
			t.Errorf("model %s --help: %v\n%s", command, err, out)
		}
	}
}
