package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/children"
)

// pythonBundle is a bundle whose handler doubles numbers.
func pythonBundle(t *testing.T, handler string) (manifest string) {
	t.Helper()
	manifest = filepath.Join(t.TempDir(), "double", bundle.ManifestFile)
	if err := os.Mkdir(filepath.Dir(manifest), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, manifest, "name: double\nengine: python\nhandler: handler.py\n")
	write(t, filepath.Join(filepath.Dir(manifest), "handler.py"), handler)
	return manifest
}

const doubling = `
inputs = {"x": ("float32", [3])}
def handle(batch): return [{"y": 2 * r["x"]} for r in batch]
`

func TestProfileOfWhatPythonRuns(t *testing.T) {
	manifest, out := pythonBundle(t, doubling), filepath.Join(t.TempDir(), "profile.json")
	if _, err := execute(t, "profile", "model", manifest, "--max-batch", "4", "--threads", "1", "--prepared", t.TempDir(), "--out", out, "--json"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var measured struct {
		Prepared string
		Profile  *profiler.Profile
	}
	if err := json.Unmarshal(text, &measured); err != nil {
		t.Fatal(err)
	}
	p := measured.Profile
	if err := p.Validate(); err != nil || p.MaxBatch() != 4 || p.Memory < 1<<20 || p.Model == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if hash, err := new(children.Models).Hash(manifest); err != nil || hash != p.Model {
		t.Errorf("hash %s, %v; the profile has %s", hash, err, p.Model)
	}
	if printed, err := execute(t, "instance", "prepare", "--model", manifest, "--cache", filepath.Dir(measured.Prepared)); err != nil || strings.TrimSpace(printed) != measured.Prepared {
		t.Errorf("prepared in %s, %v; it was %s", printed, err, measured.Prepared)
	}
}

func TestCheckOfWhatPythonRuns(t *testing.T) {
	// It is measured here and now, so the objective is beyond any stall of the machine.
	printed, err := execute(t, "model", "check", filepath.Dir(pythonBundle(t, doubling)), "--slo", "5m", "--max-batch", "2", "--prepared", t.TempDir())
	for _, want := range []string{"double\n", "x FP32[? 3]", "y FP32[? 3]", "An objective of 5m0s can be met"} {
		if err != nil || !strings.Contains(printed, want) {
			t.Errorf("%v, want %q in\n%s", err, want, printed)
		}
	}
	_, err = execute(t, "model", "check", filepath.Dir(pythonBundle(t, "def load(path): pass")), "--slo", "2s")
	if err == nil || !strings.Contains(err.Error(), "handler.py has no function handle(batch)") {
		t.Errorf("%v", err)
	}
}
