package python_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/python/environment"
)

// With ReadyEnv, Prepare installs and copies nothing. It also works if only temporary files
// can be written.
func TestInPlace(t *testing.T) {
	env, err := environment.Ensure(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(environment.ReadyEnv, env.Python)
	manifest := write(t, map[string]string{"bundle.yaml": handlerManifest + "requirements: r.txt\n", "r.txt": "no-such-distribution-anywhere\n",
		"handler.py": head + "def handle(batch): return [2 * r['x'] for r in batch]"})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []string{t.TempDir(), file} {
		t.Setenv("TMPDIR", t.TempDir())
		dir, err := python.Prepare(t.Context(), manifest, cache)
		if err != nil {
			t.Fatal(err)
		}
		p, err := python.Read(dir)
		if err != nil || p.Dir != filepath.Dir(manifest) || p.Python != env.Python {
			t.Fatalf("%+v, %v", p, err)
		}
		e, _ := serve(t, p)
		if out, err := e.Run(t.Context(), 1, floats("x", 3)); err != nil || !slices.Equal(values(out[0]), []float32{6}) {
			t.Error(out, err)
		}
	}
}
