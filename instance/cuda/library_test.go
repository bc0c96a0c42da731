package cuda

import (
	"os"
	"path/filepath"
	"strings"
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
	fetched := filepath.Join(folder, onnxruntime.CUDAVersion+"-cuda", "libonnxruntime.so")
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

// The version of CUDA is that of the runtime beside the library. The CPU's build is none for GPUs.
func TestInstalled(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(onnxruntime.LibraryEnv, filepath.Join(folder, "libonnxruntime.so"))
	if _, err := Installed(); err == nil || !strings.Contains(err.Error(), "is not a build for GPUs") || !strings.Contains(err.Error(), "make onnxruntime-cuda") {
		t.Errorf("%v", err)
	}
	for file, want := range map[string]int{"libonnxruntime_providers_cuda.so": 0, "libcudart.so.13": 13} {
		if err := os.WriteFile(filepath.Join(folder, "libonnxruntime_providers_cuda.so"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Installed(); err != nil || got != want {
			t.Errorf("with %s: %d, %v", file, got, err)
		}
		_ = os.Remove(filepath.Join(folder, "libcudart.so.13"))
	}
}
