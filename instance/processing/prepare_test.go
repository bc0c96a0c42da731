package processing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// A prepared bundle runs without its original. It is made once for each content.
func TestPrepare(t *testing.T) {
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	manifest, cache := built(t, filepath.Join(template, "function")), t.TempDir()
	if !processing.IsManifest(manifest) || processing.IsManifest(filepath.Dir(manifest)) {
		t.Error("the manifest is not told from another file")
	}
	if err := processing.Check(manifest); err != nil {
		t.Error(err)
	}
	before, err := processing.Hash(manifest)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := processing.Prepare(manifest, cache)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := processing.Prepare(manifest, cache); err != nil || again != dir {
		t.Errorf("made again in %s, %v", again, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(manifest), "words.txt"), []byte("more"), 0o644); err != nil {
		t.Fatal(err)
	}
	if after, err := processing.Hash(manifest); err != nil || after == before {
		t.Errorf("with another file the hash is %s, %v", after, err)
	}
	if other, err := processing.Prepare(manifest, cache); err != nil || other == dir {
		t.Errorf("with another file it is in %s, %v", other, err)
	}
	if err := os.RemoveAll(filepath.Dir(manifest)); err != nil {
		t.Fatal(err)
	}
	p, err := processing.Read(dir)
	if err != nil || !processing.IsPrepared(dir) || p.Form == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	e, err := processing.Open(t.Context(), processing.Options{Prepared: p, Threads: 1, Log: &logtest.Log{}, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(t.Context(), 1, []tensor.Tensor{of(t, "lengths", tensor.FP32, []int64{1, 4}, irises[8:])})
	if err != nil || values[int64](t, out[0])[0] != 2 {
		t.Errorf("%v, %v", out, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	manifest := built(t, "testdata/own")
	model := filepath.Join(filepath.Dir(manifest), "model.onnx")
	if err := os.WriteFile(model, []byte("no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := processing.Check(manifest); err == nil || !strings.Contains(err.Error(), "model.onnx") {
		t.Errorf("a broken model: %v", err)
	}
	if err := os.WriteFile(manifest, []byte("engine: onnx\nmodel: model.onnx\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if processing.IsManifest(manifest) {
		t.Error("a model without a handler is taken for one with")
	}
	if _, err := processing.InPlace(manifest); err == nil || !strings.Contains(err.Error(), "no handler") {
		t.Errorf("a model without a handler: %v", err)
	}
}
