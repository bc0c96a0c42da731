package python_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// models writes what TensorFlow is tested with into a directory.
const models = `
import sys, keras, tensorflow as tf
out = sys.argv[1]
keras.utils.set_random_seed(1)
mlp = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3, activation="relu"), keras.layers.Dense(2, name="y")])
mlp.save(out + "/m.keras")
tf.saved_model.save(mlp, out + "/saved", signatures=tf.function(lambda x: {"y": mlp(x)}).get_concrete_function(x=tf.TensorSpec([None, 4], tf.float32, name="x")))
a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b", dtype="int32")
two = keras.Model([a, b], {"sum": a + 1, "cast": keras.ops.cast(b, "float32")})
two.save(out + "/two.keras")
class Bare(tf.Module):
    @tf.function
    def __call__(self, x): return x
bare = Bare()
bare(tf.zeros([1, 4]))
tf.saved_model.save(bare, out + "/bare")
tf.saved_model.save(bare, out + "/fixed", signatures=tf.function(lambda x: {"y": x}).get_concrete_function(x=tf.TensorSpec([3, 4], tf.float32, name="x")))
`

// tensorflow makes the models.
func tensorflow(t testing.TB) (dir string) {
	t.Helper()
	env, err := environment.Ensure(t.Context(), "tensorflow", "")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	c := exec.CommandContext(t.Context(), env.Python, "-c", models, dir)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return dir
}

// bundleOf prepares one of the models, with more files.
func bundleOf(t testing.TB, dir, model, more string, files map[string]string) python.Prepared {
	t.Helper()
	all := map[string]string{"bundle.yaml": "engine: tensorflow\nmodel: " + model + "\n" + more}
	for name, text := range files {
		all[name] = text
	}
	manifest := write(t, all)
	from, to := filepath.Join(dir, model), filepath.Join(filepath.Dir(manifest), model)
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else {
		err = os.Link(from, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return prepare(t, manifest)
}

func TestTensorFlow(t *testing.T) {
	dir := tensorflow(t)
	saved := bundleOf(t, dir, "saved", "", nil)
	w := warmth(t, saved)
	with := func(o *python.Options) { o.Warm = w.Dir() }
	inputs := python.Sample([]tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 4}}}, 3, 1)
	var want []float32

	t.Run("SavedModel", func(t *testing.T) {
		if err := python.Check(t.Context(), filepath.Join(saved.Dir, "bundle.yaml")); err != nil {
			t.Error(err)
		}
		e, l := serve(t, saved, with)
		if _, forked := e.LoadTime(); !forked {
			t.Errorf("it was not forked:\n%s", l)
		}
		outputs, failed, err := e.RunRequests(t.Context(), []int{1, 2}, inputs)
		if err != nil || failed[0] != nil || len(outputs) != 2 || len(values(outputs[1][0])) != 4 {
			t.Fatal(outputs, failed, err)
		}
		want = append(values(outputs[0][0]), values(outputs[1][0])...)
	})
	t.Run("Keras", func(t *testing.T) {
		e, _ := serve(t, bundleOf(t, dir, "m.keras", "", nil), with)
		outputs, err := e.Run(t.Context(), 3, inputs)
		if err != nil || outputs[0].Name != "y" {
			t.Fatal(outputs, err)
		}
		for i, v := range values(outputs[0]) {
			if math.Abs(float64(v-want[i])) > 1e-6 {
				t.Errorf("element %d: %v, and the SavedModel says %v", i, v, want[i])
			}
		}
	})
	t.Run("several inputs and outputs", func(t *testing.T) {
		e, _ := serve(t, bundleOf(t, dir, "two.keras", "", nil), with)
		if len(e.Inputs()) != 2 || len(e.Outputs()) != 2 {
			t.Fatalf("%v → %v", e.Inputs(), e.Outputs())
		}
		if _, err := e.Run(t.Context(), 5, python.Sample(e.Inputs(), 5, 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("handler", func(t *testing.T) {
		e, _ := serve(t, bundleOf(t, dir, "saved", "handler: h.py\n", map[string]string{"h.py": `
import numpy as np, tensorflow as tf
def load(path):
    global model
    model = tf.saved_model.load(path)
    return model
def handle(batch):
    out = model.signatures["serving_default"](x=tf.constant(np.concatenate([r["x"] for r in batch])))["y"].numpy()
    return np.split(out, np.cumsum([len(r["x"]) for r in batch])[:-1])
`}), with)
		outputs, failed, err := e.RunRequests(t.Context(), []int{1, 2}, inputs)
		if err != nil || failed[0] != nil || failed[1] != nil || values(outputs[1][0])[3] != want[5] {
			t.Error(outputs, failed, err, want)
		}
	})
	for model, wrong := range map[string]string{"bare": "the SavedModel has no signature", "fixed": "fixed batch of 3"} {
		t.Run(model, func(t *testing.T) {
			p := bundleOf(t, dir, model, "", nil)
			// Before anything is installed, and where it cannot be seen before.
			early := map[string]string{"bare": "the model has none", "fixed": wrong}[model]
			if err := python.Check(t.Context(), filepath.Join(p.Dir, "bundle.yaml")); err == nil || !strings.Contains(err.Error(), early) {
				t.Errorf("%v, want %q", err, early)
			}
			if _, l, err := tryServe(t, p, with); err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%v, want %q\n%s", err, wrong, l)
			}
		})
	}
}
