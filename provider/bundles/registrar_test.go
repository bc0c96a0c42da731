package bundles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/children"
)

// withModels makes a bundle of models of the zoo, each with its own seed.
func withModels(t *testing.T, manifest string, models ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range models {
		writeZoo(t, filepath.Join(dir, string(rune('a'+i))+".onnx"), name, uint64(i+1))
	}
	if err := os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeZoo writes a model of the zoo to a file.
func writeZoo(t *testing.T, file, name string, seed uint64) {
	t.Helper()
	m, err := zoo.Make(name, seed)
	if err == nil {
		err = m.WriteFile(file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// files lists a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ask sets which variants may serve.
func ask(f *provider.Function, variants string) {
	f.Inference.Stated = f.Inference.Stated.With("com.openfaas.infer.variants", variants)
}

// registrarOf returns a registrar for the image app:v1 with a bundle, and a function with auto.
func registrarOf(t *testing.T, dir string) (*Registrar, *provider.Function) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(root, "app", "v1")); err != nil {
		t.Fatal(err)
	}
	f := &provider.Function{}
	f.Deployment.Image = "app:v1"
	ask(f, "auto")
	return New(Dir(root), t.TempDir(), children.New(children.Config{Prepared: t.TempDir()}), zerolog.Nop()), f
}

// names lists the names of a function's models, and fails the test if they cannot be found.
func (r *Registrar) names(t *testing.T, f *provider.Function) (names []string) {
	t.Helper()
	_, models, err := r.Models(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		names = append(names, m.Name)
	}
	return names
}

// A deployment is refused if the models of its bundle do not answer the same requests, unless it
// uses one of them only.
func TestModelsOfOneFunctionAreAlike(t *testing.T) {
	dir := withModels(t, "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}, {name: c, model: c.onnx}]\n", "mnist", "mnist", "identity")
	r, f := registrarOf(t, dir)
	ask(f, "")
	if _, _, err := r.Models(t.Context(), f); err == nil || !strings.Contains(err.Error(), "bundle.yaml: models[2] (c) has the inputs") {
		t.Errorf("%v", err)
	}
	ask(f, "c")
	if got := r.names(t, f); !slices.Equal(got, []string{"c"}) {
		t.Errorf("%v", got)
	}
	manifest := "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}]\n"
	if err := os.WriteFile(filepath.Join(string(r.bundles), "app", "v1", "bundle.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	ask(f, "")
	if !slices.Equal(r.names(t, f), []string{"a", "b"}) {
		t.Error("models that are alike are refused")
	}
	r.Children.Place = func(int, bool) error {
		t.Error("the models are read again")
		return nil
	}
	r.names(t, f)
}

// A model of another engine has one variant, and nothing is made.
func TestRegistrarOfAnotherEngine(t *testing.T) {
	dir := withModels(t, "engine: python\nhandler: handler.py\n", "mnist")
	if err := os.WriteFile(filepath.Join(dir, "handler.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, f := registrarOf(t, dir)
	state := t.TempDir()
	r = New(r.bundles, state, r.Children, zerolog.Nop())
	if err := r.Improve(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if got := r.names(t, f); !slices.Equal(got, []string{""}) {
		t.Errorf("%q", got)
	}
	if got := files(t, state); len(got) > 0 {
		t.Errorf("made: %q", got)
	}
}

// A built-in bundle that somebody has removed is written again when it is deployed.
func TestBuiltinBundlesComeBack(t *testing.T) {
	root := Dir(t.TempDir())
	for range 2 {
		if _, err := root.Program("functions/alpine"); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(string(root), "functions")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := root.Program("functions/other"); !errors.Is(err, bundle.ErrNotFound) {
		t.Error(err)
	}
}

func TestBundlesFindModels(t *testing.T) {
	root := t.TempDir()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Write(root, "team/id:v1", bundle.Manifest{}, m); err != nil {
		t.Fatal(err)
	}
	find := func(image, model string) (bundle, file string, err error) {
		f := &provider.Function{Inference: annotation.Inference{Model: model}}
		f.Deployment.Image = image
		bundle, models, err := New(Dir(root), t.TempDir(), &children.Models{}, zerolog.Nop()).Models(t.Context(), f)
		if err != nil || len(models) != 1 {
			return "", "", err
		}
		return bundle, models[0].File, nil
	}
	dir, file, err := find("team/id:v1", "")
	if err != nil || filepath.Dir(file) != dir {
		t.Errorf("the manifest's model: %q in %q, %v", file, dir, err)
	}
	if _, named, err := find("team/id:v1", filepath.Base(file)); err != nil || named != file {
		t.Errorf("the model by name: %q, %v", named, err)
	}
	for _, c := range [][2]string{{"team/id:v2", ""}, {"team/id:v1", "other.onnx"}, {"team/id:v1", "../../../etc/passwd"}, {"../team/id:v1", ""}} {
		if _, _, err := find(c[0], c[1]); err == nil {
			t.Errorf("image %q, model %q: found", c[0], c[1])
		}
	}
}
