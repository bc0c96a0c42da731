package infaas

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
)

// With auto the provider makes variants in its own directory, once. One that is killed halfway
// says so, leaves nothing, and is made later. A damaged one is made again, and one of the user's
// is used instead.
func TestRegistrar(t *testing.T) {
	quantizer(t)
	dir := withModels(t, "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", "mnist")
	labelledBy(t, dir)
	root, state := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "app"), 0o755), os.Rename(dir, filepath.Join(root, "app", "v1"))); err != nil {
		t.Fatal(err)
	}
	f := &provider.Function{}
	f.Deployment.Image, f.Inference.Stated = "app:v1", f.Inference.Stated.With(VariantsKey, "auto")
	r := bundles.New(bundles.Dir(root), state, children.New(children.Config{Prepared: t.TempDir()}), zerolog.Nop())
	b, err := bundle.Open(root, f.Deployment.Image)
	if err != nil {
		t.Fatal(err)
	}
	found := func() (names []string) {
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
	before, err := b.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(environment.ReadyEnv, killedQuantizer(t))
	if err := r.Improve(t.Context(), f); err == nil || !strings.Contains(err.Error(), "was killed by SIGKILL") {
		t.Errorf("killed: %v", err)
	}
	own := filepath.Join(state, "variants", "app", "v1")
	if got := files(t, own); !slices.Equal(got, []string{".lock"}) {
		t.Errorf("left behind: %q", got)
	}
	if got := found(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("before they are made: %q", got)
	}
	t.Setenv(environment.ReadyEnv, "")
	made := func() os.FileInfo {
		t.Helper()
		if err := r.Improve(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if got := found(); len(got) < 2 || got[0] != "a" || !strings.HasPrefix(got[1], "a-int8") {
			t.Fatalf("%q", got)
		}
		info, err := os.Stat(filepath.Join(own, registration.File))
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
	if got := found(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("with a damaged one: %q", got)
	}
	if again := made(); again.ModTime().Equal(first.ModTime()) {
		t.Error("a damaged one was not made anew")
	}
	if err := os.Rename(own, filepath.Join(b.Dir, registration.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := r.Improve(t.Context(), f); err != nil || len(found()) < 2 {
		t.Errorf("the user's own: %v", err)
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("made although the user has made them: %v", err)
	}
}
