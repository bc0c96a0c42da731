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

// record is what a prepared bundle's directory is told by.
const record engine.Record = "processing.json"

// Prepared is a bundle with its model made ready for this machine. It does not change
// when the bundle is replaced.
type Prepared struct {
	// Dir holds a copy of the bundle's files, of which Model is the ONNX file and Handler
	// the program.
	Dir     string `json:"dir"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	// Form is the directory of the model's prepared form, "" if it has none.
	Form string `json:"form,omitempty"`
}

// IsPrepared reports whether a directory is one that [Prepare] made.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads what [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// errOther says of a bundle that others are to run it.
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

// open opens the bundle that has a manifest.
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

// Check looks at a bundle without running any of it: the files that the manifest names,
// and whether the model can be read.
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

// Hash identifies a bundle's content: every file.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	return engine.HashPrepared(b.Dir, "processing")
}

// Prepare makes the model ready for this machine and keeps a copy of the bundle's files
// below cache, once; it returns the directory. onnxruntime.Load must have succeeded
// before.
func Prepare(manifest, cache string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	form, err := onnxruntime.Prepare(filepath.Join(b.Dir, b.Model), cache)
	if err != nil {
		return "", err
	}
	// The form's name says which engine and kind of CPU it is for.
	sum, err := engine.HashPrepared(b.Dir, "processing "+filepath.Base(form.Dir))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "processing-"+sum[:32])
	return dir, record.Keep(b.Dir, dir, func(kept string) any {
		return Prepared{Dir: kept, Model: b.Model, Handler: b.HandlerProgram(), Form: form.Dir}
	})
}

// InPlace is a bundle that nobody replaces, as in an image, used where it is: nothing is
// copied or written.
func InPlace(manifest string) (Prepared, error) {
	b, err := open(manifest)
	if err != nil {
		return Prepared{}, err
	}
	dir, err := filepath.Abs(b.Dir)
	return Prepared{Dir: dir, Model: b.Model, Handler: b.HandlerProgram()}, err
}
