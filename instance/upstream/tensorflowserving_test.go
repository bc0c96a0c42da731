package upstream_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// savedModels are made by TensorFlow: of one output and of two, and one of
// strings.
const savedModels = `
import sys, tensorflow as tf
class Twice(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def one(self, x): return {"twice": 2 * x}
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x"), tf.TensorSpec([None], tf.int64, name="n")])
    def two(self, x, n): return {"twice": 2 * x, "large": n > 9007199254740993}
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def words(self, text): return {"length": tf.strings.length(text), "same_bytes": tf.identity(text)}
m = Twice()
for name in ("one", "two", "words"):
    tf.saved_model.save(m, sys.argv[1] + "/" + name, {"serving_default": getattr(m, name)})
`

// tensorFlow is a Python that has TensorFlow, and models that it has made.
func tensorFlow(t *testing.T) (python, models string) {
	t.Helper()
	made, err := makeSavedModels()
	if err != nil {
		t.Fatal(err)
	}
	return made.python, made.models
}

type made struct{ python, models string }

// makeSavedModels does it once, in a directory that TestMain removes.
var makeSavedModels = sync.OnceValues(func() (m made, err error) {
	env, err := environment.Ensure(context.Background(), bundle.EngineTensorFlow, "")
	if err != nil {
		return m, err
	}
	m = made{env.Python, filepath.Join(scratch, "models")}
	c := exec.Command(env.Python, "-c", savedModels, m.models)
	c.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=2")
	if out, err := c.CombinedOutput(); err != nil {
		return m, fmt.Errorf("make models: %w\n%s", err, out)
	}
	return m, nil
})

// predictBundle is one whose server is testdata's, with a model at a place in the
// bundle.
func predictBundle(t *testing.T, python, model, at string) upstream.Prepared {
	t.Helper()
	manifest := write(t, map[string]string{
		"bundle.yaml": "name: twice\nengine: tensorflow-serving\nmodel: model\nserver: " + python + " predict.py\n", "predict.py": "@predict.py",
	})
	if err := os.CopyFS(filepath.Join(filepath.Dir(manifest), at), os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	return prepare(t, manifest)
}

// TensorFlow Serving's REST protocol, flags and batching parameters, with real
// SavedModels behind a server made from TensorFlow: its own program is not to be had.
func TestTensorFlowServingsProtocol(t *testing.T) {
	t.Parallel()
	python, models := tensorFlow(t)
	x := floats("x", 1, 2, 3, 0.1)

	e, l := serve(t, predictBundle(t, python, filepath.Join(models, "one"), "model"))
	l.Await(t, "batch 8 wait 0", 1)
	if out, err := e.Run(t.Context(), 2, []tensor.Tensor{x}); err != nil || fmt.Sprint(values(out[0])) != "[2 4 6 0.2]" {
		t.Errorf("one output: %v, %v", out, err)
	}
	if _, err := e.Run(t.Context(), 9, []tensor.Tensor{floats("x", make([]float32, 18)...)}); err == nil || lost(err) || !strings.Contains(err.Error(), "answered 400: Task size 9 is larger than maximum input batch size 8") {
		t.Errorf("what the server refuses: %v", err)
	}
	if out, err := e.Run(t.Context(), 1, []tensor.Tensor{floats("x", 1, float32Inf())}); err != nil || values(out[0])[1] != float32Inf() {
		t.Errorf("an infinity: %v, %v", out, err)
	}

	e, l = serve(t, predictBundle(t, python, filepath.Join(models, "two"), "model/12"))
	if got := fmt.Sprint(e.Inputs(), e.Outputs()); got != "[{n INT64 [-1]} {x FP32 [-1 2]}] [{large BOOL [-1]} {twice FP32 [-1 2]}]" {
		t.Errorf("the model takes and gives %s", got)
	}
	n := tensor.Tensor{Name: "n", Type: tensor.Int64, Shape: []int64{2}, Data: []byte{1, 0, 0, 0, 0, 0, 32, 0, 2, 0, 0, 0, 0, 0, 32, 0}}
	if out, err := e.Run(t.Context(), 2, []tensor.Tensor{n, x}); err != nil || fmt.Sprint(out[0].Data, values(out[1])) != "[0 1] [2 4 6 0.2]" {
		t.Errorf("two outputs: %v, %v\n%s", out, err, l)
	}
}

// TestTensorFlowServingsStrings checks that strings go to the server and come back.
func TestTensorFlowServingsStrings(t *testing.T) {
	t.Parallel()
	python, models := tensorFlow(t)
	e, l := serve(t, predictBundle(t, python, filepath.Join(models, "words"), "model"))
	text := tensor.Tensor{Name: "text", Type: tensor.Bytes, Shape: []int64{3}}
	for _, s := range []string{"four", "", "\xff\x00\xfe"} {
		text.Data = tensor.AppendString(text.Data, s)
	}
	out, err := e.Run(t.Context(), 3, []tensor.Tensor{text})
	if err != nil {
		t.Fatalf("%v\n%s", err, l)
	}
	for i, o := range e.Outputs() {
		switch o.Name {
		case "length":
			if got := fmt.Sprint(out[i].Data); got != "[4 0 0 0 0 0 0 0 3 0 0 0]" {
				t.Errorf("the lengths are %s", got)
			}
		case "same_bytes":
			if string(out[i].Data) != string(text.Data) {
				t.Errorf("the strings are %q", out[i].Data)
			}
		}
	}
}
