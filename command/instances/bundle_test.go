package instances

import (
	"os"
	"path/filepath"
	"testing"
)

// A model in a folder of its bundle finds the bundle, as in a pod.
func TestBundleOfAModel(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bundle", "bundle/onnx", "alone"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bundle", "bundle.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"bundle/model.onnx": "bundle", "bundle/onnx/model.onnx": "bundle", "alone/model.onnx": "alone"} {
		if got := (&bundleFlags{}).dir(filepath.Join(dir, model)); got != filepath.Join(dir, want) {
			t.Errorf("the bundle of %s is %s", model, got)
		}
	}
	if got := (&bundleFlags{path: "stated"}).dir("x/y.onnx"); got != "stated" {
		t.Errorf("a stated bundle is %s", got)
	}
}
