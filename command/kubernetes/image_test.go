package kubernetes

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// makeImage runs the command and returns what it printed.
func makeImage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := NewImageCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// smallBase writes an image in place of the one with Debian's packages.
func smallBase(t *testing.T, name string) {
	t.Helper()
	i, err := mutate.Config(empty.Image, v1.Config{Entrypoint: []string{image.Program}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	if i, err = mutate.ConfigFile(i, config); err != nil {
		t.Fatal(err)
	}
	if err := image.WriteFile(name, image.Image{Name: "base", Image: i}); err != nil {
		t.Fatal(err)
	}
}

func TestImageOfModel(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host, dir := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	base, model, tar := filepath.Join(dir, "base.tar"), filepath.Join(dir, "m.onnx"), filepath.Join(dir, "m.tar")
	smallBase(t, base)
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(model); err != nil {
		t.Fatal(err)
	}
	out, err := makeImage(t, "function", model, "--base", base, "--tar", tar)
	if err != nil || !strings.Contains(out, tar) {
		t.Fatalf("%s: %v", out, err)
	}
	images, err := image.ReadFile(tar)
	if err != nil || !strings.HasSuffix(images[0].Name, "faas-infer/identity:latest") {
		t.Fatalf("%+v, %v", images, err)
	}
	if out, err = makeImage(t, "push", tar, host+"/identity:v1"); err != nil || !strings.Contains(out, "@sha256:") {
		t.Fatalf("%s: %v", out, err)
	}
	b, err := image.Pull(t.Context(), host+"/identity:v1", nil, dir)
	if err != nil || b.Model != "model.onnx" {
		t.Errorf("%+v, %v", b, err)
	}
	// What faas-cli's builder sends goes the same way.
	if _, err := makeImage(t, "push", base, host+"/base:v1"); err != nil {
		t.Fatal(err)
	}
	publish, err := (&publishFlags{base: host + "/base:v1"}).publisher(nil)
	if err != nil {
		t.Fatal(err)
	}
	var said string
	built := &bundle.Bundle{Dir: b.Dir, Manifest: b.Manifest}
	if err := publish(t.Context(), host+"/built:v1", built, func(format string, _ ...any) { said = format }); err != nil || said == "" {
		t.Errorf("published: %v, said %q", err, said)
	}
	if _, err := image.Resolve(t.Context(), host+"/built:v1", nil); err != nil {
		t.Error(err)
	}
}

func TestImageRefuses(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	smallBase(t, base)
	if err := os.WriteFile(filepath.Join(dir, "text.onnx"), []byte("no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"base", "--tar FILE"},
		{"function " + dir + " --tar x.tar --base " + base, "bundle.yaml"},
		{"function " + dir + "/text.onnx --tar x.tar --base " + base, "text.onnx"},
		{"function " + dir + "/absent --tar x.tar --base " + base, "absent"},
		{"provider --tar x.tar --base " + dir + "/absent.tar", "--base"},
		{"push " + dir + "/absent.tar a/b", "absent.tar"},
		{"push " + base + " Not:A:Name", "invalid image name"},
	} {
		if out, err := makeImage(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("image %s: %v, want %q: %s", c.args, err, c.want, out)
		}
	}
	if _, err := (&publishFlags{}).publisher(nil); err == nil || !strings.Contains(err.Error(), "--builder-base") {
		t.Errorf("a builder without a base: %v", err)
	}
	if left, err := filepath.Glob("*.tar"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
