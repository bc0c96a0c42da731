package onnxruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(zooFile(t, "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options Options
		wrong   string
	}{
		"no file":    {Options{Model: filepath.Join(folder, "none.onnx"), Threads: 1}, "none.onnx"},
		"not ONNX":   {Options{Model: write("text.onnx", []byte("hello")), Threads: 1}, "not an ONNX model"},
		"cut off":    {Options{Model: write("cut.onnx", whole[:len(whole)/2]), Threads: 1}, "truncated ONNX model"},
		"no threads": {Options{Model: write("whole.onnx", whole)}, "threads is 0; it must be at least 1"},
	} {
		_, err := Open(c.options)
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
}
