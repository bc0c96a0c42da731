package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

func TestConvertRefuses(t *testing.T) {
	in := filepath.Join(t.TempDir(), "m.txt")
	write(t, in, "")
	for want, arguments := range map[string][]string{
		"name a file .keras":         {in, "out.onnx"},
		"nothing.pt2 does not exist": {"nothing.pt2", "out.onnx"},
		`--input "x" is not NAME=`:   {in, "out.onnx", "--input", "x"},
		"accepts 2 arg":              {in},
	} {
		if _, err := execute(t, append([]string{"model", "convert"}, arguments...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
