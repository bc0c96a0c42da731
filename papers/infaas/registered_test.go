package infaas

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
)

// registeredBundle is a bundle with models a and b, and a registered variant of a.
func registeredBundle(t *testing.T) *bundle.Bundle {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		hash, err := model.ContentHash(path)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	a, b, small := write("a.onnx", "a"), write("b.onnx", "b"), write("variants/static-1.onnx", "small")
	write("bundle.yaml", "name: net\nmodels: [{name: a, model: a.onnx, image: 8x8, accuracy: 70}, {name: b, model: b.onnx, accuracy: 60}]\n")
	write("variants/variants.yaml", strings.NewReplacer("A", a, "B", b, "S", small).Replace(`key: k
machine: m
engine: e
metric: top-1
variants:
  - {model: a, name: a, file: a.onnx, hash: A, accuracy: {value: 72, low: 70, high: 74, rows: 500}, latency_ms: 2, rps: 500, load_ms: 1, memory_mb: 1}
  - {model: a, name: a-int8, file: static-1.onnx, generated: true, hash: S, accuracy: {value: 71.5, low: 69, high: 73, rows: 500}, latency_ms: 1, rps: 1000, load_ms: 1, memory_mb: 1}
  - {model: b, name: b, file: b.onnx, hash: B, stated: 60, latency_ms: 1, rps: 900, load_ms: 1, memory_mb: 1}
`))
	found, err := bundle.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func in(b *bundle.Bundle, more ...string) registrations {
	return registrations{Dirs: append([]string{filepath.Join(b.Dir, "variants")}, more...), Hash: model.ContentHash}
}

func asking(names string) *provider.Function {
	f := &provider.Function{}
	f.Inference.Stated = f.Inference.Stated.With(VariantsKey, names)
	return f
}

func auto() *provider.Function {
	return asking(autoVariants)
}

// Generated variants serve if they are named, and with auto. Their accuracy is measured, and
// that of the models, too.
func TestRegisteredVariants(t *testing.T) {
	b := registeredBundle(t)
	a, small, other := control.Model{Name: "a", Of: "a", File: filepath.Join(b.Dir, "a.onnx"), Images: "8x8", Accuracy: 72},
		control.Model{Name: "a-int8", Of: "a", File: filepath.Join(b.Dir, "variants", "static-1.onnx"), Images: "8x8", Accuracy: 71.5},
		control.Model{Name: "b", Of: "b", File: filepath.Join(b.Dir, "b.onnx"), Accuracy: 60}
	for name, c := range map[string]struct {
		f    *provider.Function
		want []control.Model
	}{
		"bundle": {asking(""), []control.Model{a, other}},
		"auto":   {auto(), []control.Model{a, other, small}},
		"names":  {asking("a-int8,b"), []control.Model{other, small}},
	} {
		if got, err := modelsOf(b, c.f, in(b)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := modelsOf(b, auto(), registrations{}); err != nil || len(got) != 2 || got[0].Accuracy != 70 {
		t.Errorf("without a registration: %+v, %v", got, err)
	}
	if _, err := modelsOf(b, asking("a-int4"), in(b)); err == nil || !strings.Contains(err.Error(), "it has a, b, a-int8") {
		t.Errorf("an unknown variant: %v", err)
	}
}

// A bundle with one model has variants, too, by its name.
func TestRegisteredVariantsOfOneModel(t *testing.T) {
	b := registeredBundle(t)
	b.Models, b.Model, b.Name = nil, "b.onnx", "b"
	if got, err := modelsOf(b, auto(), registrations{}); err != nil || len(got) != 1 || got[0].Name != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := modelsOf(b, asking(""), registrations{}); err != nil || len(got) != 1 || got[0].Name != "" || got[0].Of != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A registration that is damaged, or of another file, is refused by its name if the deployment
// names its variants. With auto the next directory counts, and the provider makes it again.
func TestBadRegistrations(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"not YAML":         {"variants/variants.yaml", "variants: [", "variants/variants.yaml"},
		"empty":            {"variants/variants.yaml", "key: k\n", "variants is empty"},
		"another model":    {"a.onnx", "new", "a.onnx is another file"},
		"damaged variant":  {"variants/static-1.onnx", "?", "static-1.onnx is another file"},
		"missing variant":  {"variants/static-1.onnx", "", "static-1.onnx"},
		"no such model":    {"bundle.yaml", "models: [{name: b, model: b.onnx}]\n", "variants of a, and the bundle has no such"},
		"another model, c": {"bundle.yaml", "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}, {name: c, model: bundle.yaml}]\n", "it does not have the bundle's model c"},
		"name taken":       {"bundle.yaml", "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}, {name: a-int8, model: bundle.yaml}]\n", "it does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			b := registeredBundle(t)
			path := filepath.Join(b.Dir, c.file)
			err := os.WriteFile(path, []byte(c.text), 0o644)
			if c.text == "" {
				err = os.Remove(path)
			}
			if err == nil {
				b, err = bundle.OpenDir(b.Dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in(b).Find(b); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "variants.yaml") {
				t.Errorf("%v", err)
			}
			if _, err := modelsOf(b, auto(), in(b)); err == nil {
				t.Error("auto takes it where nobody makes another")
			}
			where := in(b)
			where.Remade = true
			if got, err := modelsOf(b, auto(), where); err != nil || len(got) != len(b.Models) {
				t.Errorf("auto: %+v, %v", got, err)
			}
			if _, err := modelsOf(b, asking("b"), where); err != nil {
				t.Errorf("a model of the bundle: %v", err)
			}
			if name == "name taken" {
				return
			}
			if _, err := modelsOf(b, asking("a-int8"), where); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("by name: %v", err)
			}
		})
	}
	b, good := registeredBundle(t), registeredBundle(t)
	if err := os.WriteFile(filepath.Join(b.Dir, "variants", "variants.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if dir, err := in(b, filepath.Join(good.Dir, "variants")).Find(b); err != nil || !strings.HasPrefix(dir, good.Dir) {
		t.Errorf("behind a bad one: %q, %v", dir, err)
	}
}
