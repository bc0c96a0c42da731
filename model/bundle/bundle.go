// Package bundle opens, checks and writes bundles. A bundle is the directory behind
// an image name on one machine: the files of a model or a program, and a small
// manifest, bundle.yaml, that a person can read and write. The package runs
// neither models nor programs. Begin with [Open], [Manifest] and [WriteFiles].
//
// The manifest of an ONNX model:
//
//	name: mnist
//	engine: onnx
//	model: model.onnx
//	description: Number recognition
//
// Several ONNX models that answer the same requests:
//
//	name: photos
//	models:
//	  - {name: resnet50, model: resnet50.onnx, image: 224x224}
//	  - {name: mobilenet, model: mobilenet.onnx, accuracy: 70.6}
//	validation: {data: validation.npz}
//
// A model that Python runs, by a handler or by TensorFlow alone:
//
//	name: spam
//	engine: python
//	model: model.pickle
//	handler: handler.py
//	requirements: requirements.txt
//
// A model that a third-party model server runs:
//
//	name: digits
//	engine: triton
//	model: digits
//
// An ordinary function:
//
//	name: greet
//	process: ./handler --polite
//	mode: http
//	env:
//	  GREETING: Hello
//
// The bundle of the image "registry.example.com/team/mnist:v2" is the directory
// registry.example.com/team/mnist/v2 under the provider's root. place.go puts
// directories there.
package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Errors that opening a bundle wraps.
var (
	// ErrImage: the image's name does not give a directory below the root.
	ErrImage = errors.New("invalid image name")
	// ErrNotFound: there is no bundle for the image.
	ErrNotFound = errors.New("no bundle")
	// ErrManifest: a field of the manifest is wrong or missing.
	ErrManifest = errors.New("invalid " + ManifestFile)
	// ErrProgram: the bundle is a program, and the function needs a model.
	ErrProgram = errors.New("the bundle is a program")
	// ErrModel: the bundle is a model, and the function needs a program.
	ErrModel = errors.New("the bundle is a model")
)

// ProgramPath is the PATH of bundles' programs on a machine, unless the function's environment sets it. It is not
// the provider's, which depends on how that was started and may name directories that functions cannot see.
const ProgramPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Bundle is a bundle on this machine.
type Bundle struct {
	// Dir is its directory.
	Dir string
	Manifest
}

// Open opens the bundle of an image below root and checks it. The error wraps
// [ErrImage], [ErrNotFound] or [ErrManifest] and says what to do.
func Open(root, image string) (*Bundle, error) {
	path, err := Path(image)
	if err != nil {
		return nil, err
	}
	below, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the directory of bundles: %w", err)
	}
	defer below.Close()
	inside, err := below.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w for image %q: there is no %s; make one of a model or a program's directory with `faas-infer bundle FILE|DIR --root %s --image %s`, or build it with faas-cli's --remote-builder", ErrNotFound, image, filepath.Join(root, path), root, image)
	}
	if err != nil {
		return nil, fmt.Errorf("open the bundle of image %q: %w", image, err)
	}
	defer inside.Close()
	m, err := readManifest(inside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w for image %q: %s has no %s; write one of three lines, for a program `name: %s`, `process: ./handler`, `mode: http`, for a model `name: %[5]s`, `engine: onnx`, `model: model.onnx`", ErrNotFound, image, filepath.Join(root, path), ManifestFile, filepath.Base(filepath.Dir(path)))
	}
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", image, err)
	}
	if m.Name == "" {
		m.Name = filepath.Base(filepath.Dir(path))
	}
	b := &Bundle{Dir: filepath.Join(root, path), Manifest: m}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("image %q: %w", image, err)
	}
	return b, nil
}

// OpenDir is [Open] for a directory, which need not have an image name.
func OpenDir(dir string) (*Bundle, error) {
	inside, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	m, err := readManifest(inside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s", ErrNotFound, dir, ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	if m.Name == "" {
		m.Name = directoryName(dir)
	}
	b := &Bundle{Dir: dir, Manifest: m}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// directoryName is the name of a directory, even for a path such as ".".
func directoryName(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		dir = full
	}
	return filepath.Base(dir)
}

func readManifest(inside *os.Root) (Manifest, error) {
	// A pipe would otherwise hold its opener until somebody writes, for ever.
	f, err := inside.OpenFile(ManifestFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Manifest{}, err
	}
	if !info.Mode().IsRegular() {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, &fs.PathError{Op: "read", Path: ManifestFile, Err: errors.New("it is not a file")})
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, fmt.Errorf("read %s: %w", ManifestFile, err)
	}
	if len(text) > maxManifest {
		return Manifest{}, fmt.Errorf("%s has more than %d bytes, the maximum", ManifestFile, maxManifest)
	}
	return ParseManifest(text)
}

// check checks the files that the manifest names.
func (b *Bundle) check() error {
	if !b.IsProgram() {
		return b.checkModel()
	}
	name := b.ProcessFile()
	if name == "" {
		return nil
	}
	// A link may lead to a program outside the bundle, as in a Python virtual
	// environment.
	info, err := os.Stat(filepath.Join(b.Dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: process: the bundle has no file %q", ErrManifest, name)
	case err != nil:
		return fmt.Errorf("%w: process: %w", ErrManifest, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: process: %q in the bundle is not a file", ErrManifest, name)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%w: process: %q in the bundle is not executable; make it so with chmod +x", ErrManifest, name)
	}
	return nil
}

// CheckModel returns an error that wraps [ErrProgram] for a program: a function
// with a latency objective needs a model.
func (b *Bundle) CheckModel() error {
	if !b.IsProgram() {
		return nil
	}
	return fmt.Errorf("%w, with process %q in its %s; only a model can have a latency objective; deploy the program without the annotation com.openfaas.slo.latency", ErrProgram, b.Process, ManifestFile)
}

// CheckProgram returns an error that wraps [ErrModel] for a model: an ordinary
// function needs a program.
func (b *Bundle) CheckProgram() error {
	if b.IsProgram() {
		return nil
	}
	return fmt.Errorf("%w, %s, and needs a latency objective; deploy it with the annotation com.openfaas.slo.latency, for example \"100ms\"", ErrModel, cmp.Or(b.firstModel(), b.Handler, b.Served()))
}

// ModelPath is the path of the file that identifies the model: the model's file, or
// the manifest if the model is more than one file. Of several models it is the first
// one's.
func (b *Bundle) ModelPath() string {
	if b.Whole() {
		return filepath.Join(b.Dir, ManifestFile)
	}
	return filepath.Join(b.Dir, b.firstModel())
}

// RequirementsFile returns the path of pip's file, "" if there is none.
func (b *Bundle) RequirementsFile() string {
	if b.Requirements == "" {
		return ""
	}
	return filepath.Join(b.Dir, b.Requirements)
}

// ModelFile is [Bundle.ModelPath], or the path of the file that a function names as
// its model. A function cannot name another model if the bundle's model is more
// than one file.
func (b *Bundle) ModelFile(named string) (string, error) {
	if named == "" {
		return b.ModelPath(), nil
	}
	if !b.Whole() {
		return b.File(named)
	}
	what := "the engine " + b.Engine
	if b.Processed() {
		what = "a model with a handler"
	}
	return "", fmt.Errorf("model is %q; it cannot be set for %s; change the bundle's %s instead", named, what, ManifestFile)
}

// File is the path of a file in the bundle, for a function that names another model
// than the manifest. It refuses a name that leads out of the bundle, even by a
// symbolic link, and anything but a regular file.
func (b *Bundle) File(name string) (string, error) {
	info, err := b.stat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%q in the bundle is not a file", name)
	}
	return filepath.Join(b.Dir, name), nil
}

// stat describes a file or directory of the bundle. It refuses a name that leads out
// of the bundle.
func (b *Bundle) stat(name string) (fs.FileInfo, error) {
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	info, err := inside.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the bundle has no file %q: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("file %q of the bundle: %w", name, err)
	}
	return info, nil
}
