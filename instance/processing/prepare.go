package processing

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// record marks a prepared bundle's directory.
const record engine.Record = "processing.json"

// Prepared is a bundle with its model prepared for this machine. It does not change
// when the bundle is replaced.
type Prepared struct {
	// Dir holds the bundle's files. Model is the path of the ONNX file in it, Handler
	// that of the program.
	Dir     string `json:"dir"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	// Form is the directory that onnxruntime.Prepare made, "" if there is none.
	Form string `json:"form,omitempty"`
}

// IsPrepared reports whether [Prepare] made this directory.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads the record in a directory that [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// errOther says that a bundle is for another engine.
var errOther = errors.New("the model has no handler that is a program")

// IsManifest reports whether a model's file is the manifest of an ONNX model's bundle
// with a handler.
func IsManifest(file string) bool {
	if filepath.Base(file) != bundle.ManifestFile {
		return false
	}
	_, err := open(file)
	return err == nil
}

// open opens the bundle with this manifest file.
func open(manifest string) (*bundle.Bundle, error) {
	b, err := bundle.OpenDir(filepath.Dir(manifest))
	if err != nil {
		return nil, err
	}
	if !b.Processed() {
		return nil, fmt.Errorf("%s: %w", manifest, errOther)
	}
	return b, nil
}

// Check checks the files that the manifest names and reads the model. It runs nothing.
func Check(manifest string) error {
	b, err := open(manifest)
	if err != nil {
		return err
	}
	m, err := model.ReadFile(filepath.Join(b.Dir, b.Model))
	if err != nil {
		return err
	}
	if _, err := m.Graph(1); err != nil {
		return fmt.Errorf("%s: %w", b.Model, err)
	}
	return nil
}

// Hash returns a hash of all the bundle's files.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	return engine.HashPrepared(b.Dir, "processing")
}

// Prepare prepares the model for this machine and keeps a copy of the bundle's files
// below cache. It does so once and returns the directory. Call onnxruntime.Load first.
func Prepare(manifest, cache string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	form, err := onnxruntime.Prepare(filepath.Join(b.Dir, b.Model), cache, onnxruntime.PrepareOptions{})
	if err == nil && form.Unbatched != "" {
		return "", fmt.Errorf("a model with a handler gets batches, and this one takes one request at a time: %s", form.Unbatched)
	}
	if err != nil {
		return "", err
	}
	// The form's name depends on the engine's version and the kind of CPU.
	sum, err := engine.HashPrepared(b.Dir, "processing "+filepath.Base(form.Dir))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "processing-"+sum[:32])
	return dir, record.Keep(b.Dir, dir, func(kept string) any {
		return Prepared{Dir: kept, Model: b.Model, Handler: b.HandlerProgram(), Form: form.Dir}
	})
}

// InPlace returns a bundle that is used without a copy. It writes nothing. It is for
// bundles that nobody replaces, as in an image.
func InPlace(manifest string) (Prepared, error) {
	b, err := open(manifest)
	if err != nil {
		return Prepared{}, err
	}
	dir, err := filepath.Abs(b.Dir)
	return Prepared{Dir: dir, Model: b.Model, Handler: b.HandlerProgram()}, err
}
