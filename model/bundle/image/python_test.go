package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// withPython is a base image whose label says that it has Python.
func withPython(t *testing.T) v1.Image {
	t.Helper()
	base := baseImage(t)
	file, err := base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.Config.Labels = map[string]string{PythonLabel: "3.11"}
	if base, err = mutate.ConfigFile(base, file); err != nil {
		t.Fatal(err)
	}
	return base
}

// filesOf maps the files of an image's layer to their content, directories and links
// to "".
func filesOf(t *testing.T, l v1.Layer) map[string]string {
	t.Helper()
	r, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	found := map[string]string{}
	for tape := tar.NewReader(r); ; {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tape)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = string(text)
	}
}

// The image of a function in Python has three parts: a base with Python, the required
// packages, and the bundle. Compiled files stay valid although all times differ there.
func TestImageOfAPythonFunction(t *testing.T) {
	packages := t.TempDir()
	head := []byte{0xa7, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0, 1, 2, 3, 4, 9, 0, 0, 0}
	checked := slices.Clone(head)
	checked[4] = 3 // It is checked by its source's content, not the time.
	for name, text := range map[string]string{
		"numpy/__init__.py": "x = 1", "numpy/__pycache__/__init__.cpython-311.pyc": string(head) + "code", "numpy/__pycache__/hash.pyc": string(checked),
		"numpy/short.pyc": "abc", "pip/__init__.py": "", "pip-24.0.dist-info/METADATA": "", "pipes.py": "",
	} {
		file := filepath.Join(packages, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "handler.py"), []byte("def handle(batch): return batch"), 0o644),
		os.WriteFile(filepath.Join(dir, bundle.ManifestFile), []byte("name: p\nengine: python\nhandler: handler.py\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	base := withPython(t)
	if _, err := Append(base, b); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "packages of the engine python") {
		t.Errorf("without its packages: %v", err)
	}
	if _, err := AppendPackages(baseImage(t), packages); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "image base --python") {
		t.Errorf("without Python: %v", err)
	}
	with, err := AppendPackages(base, packages)
	if err != nil {
		t.Fatal(err)
	}
	made, err := Append(with, b)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := made.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	found := filesOf(t, layers[1])
	const at = "usr/lib/faas-infer/python/"
	want := slices.Clone(head)
	clear(want[8:12])
	if got := found[at+"numpy/__pycache__/__init__.cpython-311.pyc"]; got != string(want)+"code" {
		t.Errorf("compiled: %x", got)
	}
	if got := found[at+"numpy/__pycache__/hash.pyc"]; !bytes.Equal([]byte(got), checked) || found[at+"numpy/short.pyc"] != "abc" || found[at+"numpy/__init__.py"] != "x = 1" {
		t.Errorf("%q", found)
	}
	if _, ok := found[at+"pipes.py"]; !ok {
		t.Error("pipes.py is missing")
	}
	for name := range found {
		if strings.HasPrefix(name, at+"pip/") || strings.HasPrefix(name, at+"pip-") {
			t.Errorf("%s is in the image", name)
		}
	}
	config, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if env := config.Config.Env; !slices.Contains(env, "FAAS_INFER_PYTHON_READY=/usr/bin/python3") || !slices.Contains(env, "PYTHONPATH=/usr/lib/faas-infer/python") {
		t.Errorf("environment %q", env)
	}
}
