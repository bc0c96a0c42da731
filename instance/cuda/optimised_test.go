package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// copies opens the model with a directory of copies, and returns the answer's difference to the CPU's
// and the directory of the one copy.
func copies(t *testing.T, name, dir string) (difference float64, kept string, used bool) {
	t.Helper()
	file, _ := zooFile(t, name)
	e, err := Open(Options{Model: file, MaxBatch: 4, Copies: dir, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	used = e.Weights().Copied
	if err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	difference = fromCPU(t, e, name)
	found, err := filepath.Glob(filepath.Join(dir, "*cuda-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v; want one copy and nothing half made", found, err)
	}
	return difference, found[0], used
}

// The first engine keeps an optimised copy, which the second loads. A damaged copy, or one of another
// model, is made again.
func TestCopies(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mnist", "bert-small"} {
		dir := t.TempDir()
		expect := func(use bool) string {
			t.Helper()
			difference, kept, used := copies(t, name, dir)
			if difference > 1e-5 || used != use {
				t.Errorf("%s differs by %g; it was loaded from a copy: %v", name, difference, used)
			}
			return kept
		}
		kept := expect(false)
		expect(true)
		if name != "mnist" {
			continue
		}
		for _, damage := range []func() error{
			func() error { return os.Truncate(filepath.Join(kept, copyWeights), 100) },
			func() error { return os.WriteFile(filepath.Join(kept, copyModel), []byte("x"), 0o644) },
			func() error { return os.Remove(filepath.Join(kept, copyManifest)) },
			func() error {
				return os.WriteFile(filepath.Join(kept, copyManifest), []byte(`{"content":"another"}`), 0o644)
			},
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			expect(false)
			expect(true)
		}
	}
}

// A copy that is complete but that ONNX Runtime refuses is made again, too.
func TestRefusedCopy(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, kept, _ := copies(t, "mnist", dir)
	file, _ := zooFile(t, "mnist")
	e, err := Open(Options{Model: file, MaxBatch: 1, Copies: dir, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	k := e.copy
	if err := os.WriteFile(filepath.Join(kept, copyModel), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !k.begin() {
		t.Fatal(k.problem)
	}
	if err := os.WriteFile(filepath.Join(k.work.Path, copyModel), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := k.publish(); err != nil || !k.check() {
		t.Fatal(err)
	}
	if difference, _, _ := copies(t, "mnist", dir); difference > 1e-5 {
		t.Errorf("it differs by %g", difference)
	}
	if _, _, used := copies(t, "mnist", dir); !used {
		t.Error("the copy was not made anew")
	}
}
