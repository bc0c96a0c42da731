package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModelFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("name: x\nprocess: ./handler\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ModelFile(dir); err == nil || !strings.Contains(err.Error(), "give the file") {
		t.Errorf("an empty folder: %v", err)
	}
	for name, text := range map[string]string{"config.json": `{"model_type": "llama"}`, "llama.gguf": "GGUF\x03\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ModelFile(dir); err == nil || !strings.Contains(err.Error(), "llama.gguf is not an ONNX model: it is a language model in GGUF") {
		t.Errorf("a folder with a model of another format: %v", err)
	}
	write("a.onnx")
	if file, err := ModelFile(dir); err != nil || filepath.Base(file) != "a.onnx" {
		t.Errorf("a folder with one model: %s, %v", file, err)
	}
	write("b.onnx")
	if _, err := ModelFile(dir); err == nil {
		t.Error("a folder with two models is none")
	}
	write("saved_model.pb")
	if _, err := ModelFile(dir); err == nil || !strings.Contains(err.Error(), "SavedModel") {
		t.Errorf("a SavedModel: %v", err)
	}
}
