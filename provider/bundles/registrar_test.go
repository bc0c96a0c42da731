package command

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/variant"
)

// registrarOf returns a registrar for the image app:v1 with a bundle, and a function with auto.
func registrarOf(t *testing.T, dir string) (*registrar, *provider.Function) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(root, "app", "v1")); err != nil {
		t.Fatal(err)
	}
	f := &provider.Function{}
	f.Deployment.Image, f.Inference.Auto = "app:v1", true
	return newRegistrar(bundles(root), t.TempDir(), &childModels{prepared: t.TempDir()}), f
}

// names lists the names of a function's models, and fails the test if they cannot be found.
func (r *registrar) names(t *testing.T, f *provider.Function) (names []string) {
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
	f.Inference.Auto = false
	if _, _, err := r.Models(t.Context(), f); err == nil || !strings.Contains(err.Error(), "bundle.yaml: models[2] (c) has the inputs") {
		t.Errorf("%v", err)
	}
	f.Inference.Variants = "c"
	if got := r.names(t, f); !slices.Equal(got, []string{"c"}) {
		t.Errorf("%v", got)
	}
	manifest := "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}]\n"
	if err := os.WriteFile(filepath.Join(string(r.bundles), "app", "v1", "bundle.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if f.Inference.Variants = ""; !slices.Equal(r.names(t, f), []string{"a", "b"}) {
		t.Error("models that are alike are refused")
	}
	r.models.place = func(int, bool) error {
		t.Error("the models are read again")
		return nil
	}
	r.names(t, f)
}

// With auto the provider makes variants in its own directory, once. One that is killed halfway
// says so, leaves nothing, and is made later. A damaged one is made anew, and one of the user's
// is used instead.
func TestRegistrar(t *testing.T) {
	quantizer(t)
	dir := withModels(t, "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", "mnist")
	labelledBy(t, dir)
	r, f := registrarOf(t, dir)
	b, err := r.open(f)
	if err != nil {
		t.Fatal(err)
	}
	before, err := b.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(environment.ReadyEnv, killedQuantizer(t))
	if err := r.register(t.Context(), f); err == nil || !strings.Contains(err.Error(), "was killed by SIGKILL") {
		t.Errorf("killed: %v", err)
	}
	own := filepath.Join(r.state, "variants", "app", "v1")
	if got := files(t, own); !slices.Equal(got, []string{".lock"}) {
		t.Errorf("left behind: %q", got)
	}
	if got := r.names(t, f); !slices.Equal(got, []string{"a"}) {
		t.Errorf("before they are made: %q", got)
	}
	t.Setenv(environment.ReadyEnv, "")
	made := func() os.FileInfo {
		t.Helper()
		if err := r.register(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if got := r.names(t, f); len(got) < 2 || got[0] != "a" || !strings.HasPrefix(got[1], "a-int8") {
			t.Fatalf("%q", got)
		}
		info, err := os.Stat(filepath.Join(own, variant.RegistrationFile))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := made()
	if again := made(); !again.ModTime().Equal(first.ModTime()) {
		t.Error("they were made twice")
	}
	if after, err := b.Fingerprint(); err != nil || after != before {
		t.Errorf("the bundle was changed, %v", err)
	}
	damaged, err := filepath.Glob(filepath.Join(own, "*.onnx"))
	if err == nil {
		err = os.WriteFile(damaged[0], []byte("?"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := r.names(t, f); !slices.Equal(got, []string{"a"}) {
		t.Errorf("with a damaged one: %q", got)
	}
	if again := made(); again.ModTime().Equal(first.ModTime()) {
		t.Error("a damaged one was not made anew")
	}
	if err := os.Rename(own, filepath.Join(b.Dir, variant.RegistrationDir)); err != nil {
		t.Fatal(err)
	}
	if err := r.register(t.Context(), f); err != nil || len(r.names(t, f)) < 2 {
		t.Errorf("the user's own: %v", err)
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("made although the user has made them: %v", err)
	}
}

// What is made of a bundle is the same for a copy of it, and another after a change of its models, of
// what is said of them or of the labelled data.
func TestRegistrarsKey(t *testing.T) {
	dir := withModels(t, "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", "mnist", "mnist")
	if err := os.WriteFile(filepath.Join(dir, "v.npz"), []byte("rows"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, f := registrarOf(t, dir)
	keys := map[string]string{}
	for _, x := range []struct{ change, file, content string }{
		{"none", "README", "new"}, {"description", "bundle.yaml", "description: d\nmodels: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n"},
		{"data", "v.npz", "ROWS"}, {"metric", "bundle.yaml", "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz, metric: top-5}\n"},
		{"accuracy", "bundle.yaml", "models: [{name: a, model: a.onnx, accuracy: 70}]\n"}, {"model", "bundle.yaml", "models: [{name: a, model: b.onnx}]\n"},
	} {
		// A copy, as a build makes one: all files are new.
		b, err := r.open(f)
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "copy")
		if err := errors.Join(os.CopyFS(again, os.DirFS(b.Dir)), os.WriteFile(filepath.Join(again, x.file), []byte(x.content), 0o644),
			os.RemoveAll(b.Dir), os.Rename(again, b.Dir)); err != nil {
			t.Fatal(err)
		}
		if b, err = r.open(f); err != nil {
			t.Fatal(err)
		}
		key, err := r.key(b)
		if err != nil {
			t.Fatal(err)
		}
		if before, known := keys[key]; known != (x.change == "description") {
			t.Errorf("%s: the key is that of %q", x.change, before)
		}
		keys[key] = x.change
	}
}

// A model of another engine has one variant, and nothing is made.
func TestRegistrarOfAnotherEngine(t *testing.T) {
	dir := withModels(t, "engine: python\nhandler: handler.py\n", "mnist")
	if err := os.WriteFile(filepath.Join(dir, "handler.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, f := registrarOf(t, dir)
	if err := r.register(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if got := r.names(t, f); !slices.Equal(got, []string{""}) {
		t.Errorf("%q", got)
	}
	if got := files(t, r.state); len(got) > 0 {
		t.Errorf("made: %q", got)
	}
}

// A built-in bundle that somebody has removed is written again when it is deployed.
func TestBuiltinBundlesComeBack(t *testing.T) {
	root := bundles(t.TempDir())
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
