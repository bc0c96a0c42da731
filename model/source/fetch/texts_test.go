package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
)

// A folder of the hub with a model of texts becomes a bundle that takes texts, and what is wrong names the repository.
func TestDescribeTexts(t *testing.T) {
	u, err := source.Parse("hf://team/embedder/")
	if err != nil {
		t.Fatal(err)
	}
	dir := textmodeltest.Lay(t, map[string]string{"onnx/model_O2.onnx": "x"})
	textmodeltest.Graph{}.Write(t, filepath.Join(dir, "onnx", "model.onnx"))
	if err := describe(dir, u); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.OpenDir(dir)
	if err != nil || b.Text == nil || b.Text.MaxLength != 8 || b.Model != "onnx/model.onnx" || b.Name != "model" {
		t.Errorf("%+v, %v", b, err)
	}
	dir = textmodeltest.Lay(t, map[string]string{"model.safetensors": "x"})
	if err := describe(dir, u); err == nil || !strings.Contains(err.Error(), "--model team/embedder --library-name") || strings.Contains(err.Error(), dir) {
		t.Errorf("a folder without ONNX: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, bundle.ManifestFile)); err == nil {
		t.Error("it has a manifest all the same")
	}
}
