package processing_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const template = "../../templates/onnx-go-infer"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// built makes the bundle of the template with a function's folder, compiled as the
// builder does it, and returns its manifest.
func built(t testing.TB, function string) string {
	t.Helper()
	module := t.TempDir()
	dir := filepath.Join(module, "function")
	err := errors.Join(os.CopyFS(module, os.DirFS(template)), os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(function)))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-o", filepath.Join(dir, "handler"), ".")
	c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, name := range []string{"model.onnx", bundle.ManifestFile} {
		text, err := os.ReadFile(filepath.Join(template, "function", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, bundle.ManifestFile)
}

// opened is the engine of such a bundle, used in place.
func opened(t *testing.T, function string, timeout time.Duration) (*processing.Engine, *logtest.Log) {
	t.Helper()
	return openedAt(t, built(t, function), timeout)
}

// openedAt is the engine of a bundle that is built.
func openedAt(t *testing.T, manifest string, timeout time.Duration) (*processing.Engine, *logtest.Log) {
	t.Helper()
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	p, err := processing.InPlace(manifest)
	if err != nil {
		t.Fatal(err)
	}
	l := &logtest.Log{}
	e, err := processing.Open(t.Context(), processing.Options{Prepared: p, Threads: 1, Timeout: timeout, Log: l, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatalf("%v; it printed %s", err, l)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, l
}

// of returns a tensor of values.
func of[T any](t *testing.T, name string, kind tensor.Type, shape []int64, values []T) tensor.Tensor {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	return tensor.Tensor{Name: name, Type: kind, Shape: shape, Data: data}
}

// values returns a tensor's values.
func values[T any](t *testing.T, from tensor.Tensor) []T {
	t.Helper()
	out := make([]T, len(from.Data)/from.Type.Size())
	if _, err := binary.Decode(from.Data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}
