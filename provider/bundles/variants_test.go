package bundles

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
)

// Without the paper of variants a function has one model: the only one of the bundle, or the one that the
// deployment names.
func TestWithoutVariants(t *testing.T) {
	open := func(manifest string) *bundle.Bundle {
		t.Helper()
		b, err := bundle.OpenDir(withModels(t, manifest, "mnist", "mnist"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	two := open("models: [{name: a, model: a.onnx, image: 8x8}, {name: b, model: b.onnx}]\n")
	one := open("models: [{name: a, model: a.onnx, image: 8x8}]\n")
	f := &provider.Function{}
	if _, err := (noVariants{}).Models(two, f); err == nil || !strings.Contains(err.Error(), "com.openfaas.infer.model is not set: the bundle has 2 models") {
		t.Errorf("two models: %v", err)
	}
	models, err := noVariants{}.Models(one, f)
	if err != nil || len(models) != 1 || models[0].File != filepath.Join(one.Dir, "a.onnx") || models[0].Images != "8x8" || models[0].Name != "" {
		t.Errorf("one model: %+v, %v", models, err)
	}
	f.Inference.Model = "b.onnx"
	models, err = noVariants{}.Models(two, f)
	if err != nil || len(models) != 1 || models[0].File != filepath.Join(two.Dir, "b.onnx") {
		t.Errorf("a named model: %+v, %v", models, err)
	}
	if got := (&Registrar{variants: noVariants{}}).Wanted(f, "bundle"); got != "" {
		t.Errorf("%q is wanted", got)
	}
}
