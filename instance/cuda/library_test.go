package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// The build for GPUs is taken where it was fetched, after one that the environment names.
func TestLibraryPath(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(onnxruntime.LibraryEnv, "")
	folder := filepath.Join(cache, "faas-infer", "onnxruntime")
	expect := func(want string) {
		t.Helper()
		if got, err := libraryPath(); err != nil || got != want {
			t.Errorf("%s, %v, not %s", got, err, want)
		}
	}
	expect(filepath.Join(folder, onnxruntime.LibraryVersion, "libonnxruntime.so"))
	fetched := filepath.Join(folder, onnxruntime.LibraryVersion+"-cuda", "libonnxruntime.so")
	if err := os.MkdirAll(filepath.Dir(fetched), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fetched, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(fetched)
	t.Setenv(onnxruntime.LibraryEnv, "/other.so")
	expect("/other.so")
}
