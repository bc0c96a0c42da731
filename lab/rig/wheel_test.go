package rig

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only the files that are wanted are unpacked, and none outside the directory.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.whl")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(out)
	for _, name := range []string{"p/a.onnx", "p/a.onnx.data", "p/b.onnx", "p/__init__.py", "p/c/d.onnx", "../e.onnx"} {
		one, err := w.Create(name)
		if err == nil {
			_, err = one.Write([]byte(name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	to := filepath.Join(dir, "out")
	if err := unpack(file, to, func(name string) bool { return !strings.HasPrefix(name, "p/b") && name != "p/__init__.py" }); err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{"p/a.onnx": true, "p/a.onnx.data": true, "p/c/d.onnx": true, "p/b.onnx": false, "../e.onnx": false, "p/__init__.py": false} {
		if text, err := os.ReadFile(filepath.Join(to, name)); (err == nil) != there || there && string(text) != name {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
