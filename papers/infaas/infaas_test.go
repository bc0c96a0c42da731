package infaas

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
)

// placeOf returns the variants of a provider whose image app:v1 has a bundle, and a function that opens it.
func placeOf(t *testing.T, dir string) (v *Variants, open func() *bundle.Bundle) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(root, "app", "v1")); err != nil {
		t.Fatal(err)
	}
	models := children.New(children.Config{Prepared: t.TempDir()})
	v = New(bundles.Place{Bundles: bundles.Dir(root), State: t.TempDir(), Hash: models.Hash, Children: models})
	return v, func() *bundle.Bundle {
		t.Helper()
		b, err := v.Bundles.Open("app:v1")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// What is made of a bundle is the same for a copy of it, and another after a change of its models, of
// what is said of them or of the labelled data.
func TestKeyOfVariants(t *testing.T) {
	dir := withModels(t, "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", "mnist", "mnist")
	if err := os.WriteFile(filepath.Join(dir, "v.npz"), []byte("rows"), 0o644); err != nil {
		t.Fatal(err)
	}
	v, open := placeOf(t, dir)
	keys := map[string]string{}
	for _, x := range []struct{ change, file, content string }{
		{"none", "README", "new"}, {"description", "bundle.yaml", "description: d\nmodels: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n"},
		{"data", "v.npz", "ROWS"}, {"metric", "bundle.yaml", "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz, metric: top-5}\n"},
		{"accuracy", "bundle.yaml", "models: [{name: a, model: a.onnx, accuracy: 70}]\n"}, {"model", "bundle.yaml", "models: [{name: a, model: b.onnx}]\n"},
	} {
		// A copy, as a build makes one: all files are new.
		b := open()
		again := filepath.Join(t.TempDir(), "copy")
		if err := errors.Join(os.CopyFS(again, os.DirFS(b.Dir)), os.WriteFile(filepath.Join(again, x.file), []byte(x.content), 0o644),
			os.RemoveAll(b.Dir), os.Rename(again, b.Dir)); err != nil {
			t.Fatal(err)
		}
		key, err := v.key(open())
		if err != nil {
			t.Fatal(err)
		}
		if before, known := keys[key]; known != (x.change == "description") {
			t.Errorf("%s: the key is that of %q", x.change, before)
		}
		keys[key] = x.change
	}
}
