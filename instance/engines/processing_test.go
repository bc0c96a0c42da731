package engines

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// An ONNX model with the template's handler takes the same calls as the engines that run
// completely beside the instance.
func TestAHandler(t *testing.T) {
	module := t.TempDir()
	if err := os.CopyFS(module, os.DirFS("../../templates/onnx-go-infer")); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(module, "function", "bundle.yaml")
	if err := Of(manifest).Check(t.Context(), manifest); err == nil {
		t.Error("a handler that is not compiled passes")
	}
	c := exec.Command("go", "build", "-o", "function/handler", ".")
	c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	hash, err := Of(manifest).Hash(manifest)
	if err := errors.Join(err, Of(manifest).Check(t.Context(), manifest)); err != nil || hash == "" {
		t.Fatalf("hash %q, %v", hash, err)
	}
	dir, err := Of(manifest).Prepare(t.Context(), manifest, t.TempDir())
	if err != nil || !isPrepared(dir) {
		t.Fatalf("prepared in %q, %v", dir, err)
	}
	engine, err := Open(t.Context(), dir, engine.Options{Threads: 1, MaxBatch: 4, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	out, err := engine.Run(t.Context(), 1, []tensor.Tensor{{Name: "lengths", Type: tensor.FP32, Shape: []int64{1, 4}, Data: numbers(6.7, 3.0, 5.6, 2.3)}})
	if err != nil || len(out) != 1 || out[0].Name != "kind" || binary.LittleEndian.Uint64(out[0].Data) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if engine.Memory() <= 0 || engine.ProcessorTime() <= 0 {
		t.Errorf("it holds %d bytes and used %v", engine.Memory(), engine.ProcessorTime())
	}
}
