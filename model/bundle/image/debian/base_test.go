package debian

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

func TestForProvider(t *testing.T) {
	program := filepath.Join(t.TempDir(), "faas-infer-kubernetes")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	functions, err := compose(empty.Image, v1.Config{Entrypoint: []string{image.Program}, User: "65532:65532", Env: []string{"PATH=/usr/bin"}, Labels: map[string]string{"a": "b"}}, "arm64",
		[]part{{"a note", []image.Entry{image.Bytes("usr/bin/faas-infer", 0o755, []byte("other"))}}})
	if err != nil {
		t.Fatal(err)
	}
	before, err := functions.Digest()
	if err != nil {
		t.Fatal(err)
	}
	made, err := ForProvider(functions, program)
	if err != nil {
		t.Fatal(err)
	}
	file, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if !slices.Equal(c.Entrypoint, []string{Provider}) || !slices.Equal(c.Cmd, []string{"provider"}) || c.User != "65532:65532" || !slices.Contains(c.Env, "XDG_STATE_HOME=/var/lib") || c.Labels["a"] != "b" {
		t.Errorf("%+v", c)
	}
	if file.OS != "linux" || file.Architecture != "arm64" || !file.Created.Equal(image.Epoch) {
		t.Errorf("%+v", file)
	}
	layers, err := made.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	if after, err := functions.Digest(); err != nil || after != before {
		t.Errorf("the base became %s, %v", after, err)
	}
	again, err := ForProvider(functions, program)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := made.Digest()
	if second, err := again.Digest(); err != nil || second != first {
		t.Errorf("%s and %s, %v", first, second, err)
	}
}

func TestForProviderRefuses(t *testing.T) {
	other, err := mutate.Config(empty.Image, v1.Config{Entrypoint: []string{"/bin/sh"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ForProvider(other, "base_test.go"); !errors.Is(err, image.ErrBase) {
		t.Errorf("any base: %v", err)
	}
	if _, err := ForProvider(other, "absent"); err == nil || !strings.Contains(err.Error(), "--provider-program") {
		t.Errorf("no program: %v", err)
	}
}
