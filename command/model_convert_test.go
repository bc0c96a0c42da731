package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python/convert"
	"github.com/faas-infer/faas-infer/instance/python/environment"
)

const aKerasModel = `
import sys, keras
x = keras.Input((6,), name="features")
y = keras.layers.Dense(3, activation="softmax", name="classes")(keras.layers.Dense(8, activation="relu")(x))
keras.Model(x, y).save(sys.argv[1])
`

// The steps of the guide work: train, convert, check.
func TestConvertThenCheck(t *testing.T) {
	e, err := environment.Find(t.Context(), "convert-tensorflow", "")
	if err != nil || !e.Made() {
		t.Fatalf("run scripts/python.sh convert-tensorflow first (%v)", err)
	}
	in, out := filepath.Join(t.TempDir(), "mlp.keras"), filepath.Join(t.TempDir(), "mlp.onnx")
	if text, err := exec.CommandContext(t.Context(), e.Python, "-c", aKerasModel, in).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	printed, err := execute(t, "model", "convert", in, out)
	for _, want := range []string{"Wrote " + out, "opset 17", "tf2onnx 1.17.0", "features FP32[? 6]", "outputs  classes", "0.0001 is tolerated", "model check " + out} {
		if err != nil || !strings.Contains(printed, want) {
			t.Errorf("%v, want %q in\n%s", err, want, printed)
		}
	}
	// Its operators are measured here and now, so the objective is beyond any stall.
	printed, err = execute(t, "model", "check", out, "--slo", "5m", "--prepared", t.TempDir())
	if err != nil || !strings.Contains(printed, "An objective of 5m0s can be met") {
		t.Errorf("%v\n%s", err, printed)
	}
	out = filepath.Join(t.TempDir(), "again.onnx")
	printed, err = execute(t, "model", "convert", in, out, "--tolerance", "0", "--batches", "64", "--json")
	if _, there := os.Stat(out); err == nil || there == nil || !strings.Contains(err.Error(), "does not answer as the old one") || !strings.Contains(printed, `"classes.b64.difference"`) {
		t.Errorf("%v, %v\n%s", err, there, printed)
	}
}

const aForest = `
import sys, joblib, numpy, sklearn.base
from sklearn.ensemble import RandomForestClassifier
x = numpy.random.default_rng(1).random((200, 4), dtype="float32")
sklearn.base.__version__ = "1.5.2"  # As if that had written it.
joblib.dump(RandomForestClassifier(5).fit(x, x[:, 0] > 0.5), sys.argv[1])
`

// A pickled forest becomes ONNX, with a warning if another version wrote it. Its operator is
// not one of ONNX's own, so it is measured as a whole.
func TestConvertAForestThenCheck(t *testing.T) {
	e, err := environment.Find(t.Context(), "convert-tabular", "")
	if err != nil || !e.Made() {
		t.Fatalf("run scripts/python.sh convert-tabular first (%v)", err)
	}
	in, out := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "forest.onnx") // The name says nothing.
	if text, err := exec.CommandContext(t.Context(), e.Python, "-c", aForest, in).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var printed, progress bytes.Buffer
	o := convertOptions{Options: convert.Options{In: in, Out: out, Trust: true, Below: 2, Seed: 1, Tolerance: 1e-4}}
	if err := o.run(t.Context(), &printed, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for text, wants := range map[string][]string{
		printed.String():  {"Wrote " + out, "skl2onnx 1.", "input FP32[? 4]", "label, probabilities", "256, some missing (NaN)", "model check " + out},
		progress.String(): {"warning: RandomForestClassifier was written by scikit-learn 1.5.2"},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("want %q in\n%s", want, text)
			}
		}
	}
	checked, err := execute(t, "model", "check", out, "--slo", "5m", "--prepared", t.TempDir(), "--max-batch", "2")
	if err != nil || !strings.Contains(checked, "An objective of 5m0s can be met") || !strings.Contains(checked, "probabilities FP32[? 2]") {
		t.Errorf("%v\n%s", err, checked)
	}
}

func TestConvertRefuses(t *testing.T) {
	in, pickle := filepath.Join(t.TempDir(), "m.txt"), filepath.Join(t.TempDir(), "m.joblib")
	write(t, in, "")
	write(t, pickle, "\x80\x04}\x94.")
	for want, arguments := range map[string][]string{
		"it is an empty file":        {in, "out.onnx"},
		"give --trust":               {pickle, "out.onnx"},
		"nothing.pt2 does not exist": {"nothing.pt2", "out.onnx"},
		`--input "x" is not NAME=`:   {in, "out.onnx", "--input", "x"},
		"accepts 2 arg":              {in},
	} {
		if _, err := execute(t, append([]string{"model", "convert"}, arguments...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
