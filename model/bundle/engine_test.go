package bundle_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
)

func TestManifestsOfPythonsModels(t *testing.T) {
	for _, c := range []struct{ text, wrong string }{
		{"name: a\nengine: tensorflow\nmodel: saved_model\n", ""},
		{"name: a\nengine: tensorflow\nmodel: m.keras\nhandler: handler.py\nrequirements: requirements.txt\n", ""},
		{"name: a\nengine: python\nhandler: src/handler.py\n", ""},
		{"name: a\nengine: python\nmodel: m.bin\n", "handler is missing"},
		{"name: a\nengine: tensorflow\nhandler: handler.py\n", "model is missing"},
		{"name: a\nengine: python\nhandler: handler.txt\n", `handler is "handler.txt"`},
		{"name: a\nengine: python\nhandler: ../handler.py\n", "handler is \"../handler.py\""},
		{"name: a\nengine: python\nhandler: handler.py\nrequirements: /etc/passwd\n", "requirements is"},
		{"name: a\nengine: onnx\nmodel: m.onnx\nhandler: handler.py\n", "a handler in Python needs the engine tensorflow or python"},
		{"name: a\nengine: onnx\nmodel: m.onnx\nhandler: handler.go\n", ""},
		{"name: a\nengine: onnx\nmodel: m.onnx\nhandler: bin/handler\n", ""},
		{"name: a\nengine: onnx\nmodel: m.onnx\nhandler: ../handler.go\n", "handler is \"../handler.go\""},
		{"name: a\nengine: onnx\nhandler: handler.go\n", "model is missing"},
		{"name: a\nengine: onnx\nmodel: m.onnx\nrequirements: r.txt\n", "requirements is for"},
		{"name: a\nengine: torch\nmodel: m\n", "onnx, tensorflow, python, triton, tensorflow-serving or mlserver"},
		{"name: a\nhandler: handler.py\n", "engine is missing"},
		{"name: a\nprocess: ./handler\nhandler: handler.py\n", "process is for programs, handler is for models"},
	} {
		_, err := bundle.ParseManifest([]byte(c.text))
		if c.wrong == "" && err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if c.wrong != "" && (!errors.Is(err, bundle.ErrManifest) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.wrong)
		}
	}
}

func TestFilesOfPythonsModels(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		files    []string
		wrong    string
	}{
		"a SavedModel":           {"engine: tensorflow\nmodel: m\n", []string{"m/saved_model.pb"}, ""},
		"no SavedModel":          {"engine: tensorflow\nmodel: m\n", []string{"m/weights"}, "no saved_model.pb"},
		"a Keras file":           {"engine: tensorflow\nmodel: m.keras\n", []string{"m.keras"}, ""},
		"another file":           {"engine: tensorflow\nmodel: m.tflite\n", []string{"m.tflite"}, "neither a SavedModel's"},
		"another, with handler":  {"engine: tensorflow\nmodel: m.tflite\nhandler: h.py\n", []string{"m.tflite", "h.py"}, ""},
		"no model":               {"engine: tensorflow\nmodel: m\n", nil, "no file or directory"},
		"no handler":             {"engine: python\nhandler: h.py\n", nil, `handler: the bundle has no file "h.py"`},
		"no requirements":        {"engine: python\nhandler: h.py\nrequirements: r.txt\n", []string{"h.py"}, "requirements: the bundle has no file"},
		"handler alone":          {"engine: python\nhandler: h.py\n", []string{"h.py"}, ""},
		"a program as handler":   {"engine: onnx\nmodel: m.onnx\nhandler: run\n", []string{"m.onnx", "run"}, "\"run\" in the bundle is not executable"},
		"nothing compiled":       {"engine: onnx\nmodel: m.onnx\nhandler: h.go\n", []string{"m.onnx", "h.go"}, "no program \"h\" for the handler h.go"},
		"a directory as handler": {"engine: python\nhandler: h.py\n", []string{"h.py/x"}, "is not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range append(c.files, bundle.ManifestFile) {
				text := ""
				if file == bundle.ManifestFile {
					text = "name: a\n" + c.manifest
				}
				path := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			b, err := bundle.OpenDir(dir)
			switch {
			case c.wrong != "":
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, want %q", err, c.wrong)
				}
			case err != nil:
				t.Error(err)
			case b.ModelPath() != filepath.Join(dir, bundle.ManifestFile):
				t.Errorf("the model stands for %s", b.ModelPath())
			}
		})
	}
}

// The program of a handler in Go is the file beside it. The manifest identifies the
// model.
func TestHandlersOfONNXModels(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"m.onnx": 0o644, "h.go": 0o644, "h": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	m := bundle.Manifest{Name: "a", Engine: bundle.EngineONNX, Model: "m.onnx", Handler: "h.go"}
	if err := m.WriteFile(dir); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Processed() || b.HandlerProgram() != "h" || b.ModelPath() != filepath.Join(dir, bundle.ManifestFile) {
		t.Errorf("%+v: program %q, path %s", b.Manifest, b.HandlerProgram(), b.ModelPath())
	}
	if file, err := b.ModelFile(""); err != nil || file != b.ModelPath() {
		t.Errorf("the model is %s, %v", file, err)
	}
	if _, err := b.ModelFile("m.onnx"); err == nil || !strings.Contains(err.Error(), "cannot be set for a model with a handler") {
		t.Errorf("the model without its handler: %v", err)
	}
}
