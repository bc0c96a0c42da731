// Package bundle is how a function's image becomes a model on one machine: a
// plain directory with the model and a small manifest, bundle.yaml, that a
// person can look into and write by hand:
//
//	name: mnist
//	engine: onnx
//	model: model.onnx
//	description: Number recognition
//
// The image "registry.example.com/team/mnist:v2" is the directory
// registry.example.com/team/mnist/v2 under the root that the provider was given.
package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	// ManifestFile is the manifest's name in a bundle.
	ManifestFile = "bundle.yaml"
	// EngineONNX is the engine that runs ONNX models.
	EngineONNX = "onnx"
	// maxManifest is the most bytes of a manifest.
	maxManifest = 1 << 20
)

// Errors that opening a bundle wraps.
var (
	// ErrImage: the image's name cannot be a directory below the root.
	ErrImage = errors.New("invalid image name")
	// ErrNotFound: there is no bundle for the image.
	ErrNotFound = errors.New("no bundle")
	// ErrManifest: the manifest does not say what it must.
	ErrManifest = errors.New("invalid " + ManifestFile)
)

// Manifest is what bundle.yaml says.
type Manifest struct {
	// Name is for people.
	Name string `yaml:"name"`
	// Engine runs the model; "onnx" is the only one.
	Engine string `yaml:"engine"`
	// Model is the model's file, relative to the bundle.
	Model string `yaml:"model"`
	// Description is for people, and may be left out.
	Description string `yaml:"description,omitempty"`
}

// Validate returns an error that names the first field that is wrong.
func (m Manifest) Validate() error {
	switch {
	case m.Name == "":
		return fmt.Errorf("%w: name is missing; give the model a name", ErrManifest)
	case m.Engine == "":
		return fmt.Errorf("%w: engine is missing; write `engine: %s`", ErrManifest, EngineONNX)
	case m.Engine != EngineONNX:
		return fmt.Errorf("%w: engine is %q; the only one known is %q", ErrManifest, m.Engine, EngineONNX)
	case m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the model's file in the bundle, as `model: model.onnx`", ErrManifest)
	case !filepath.IsLocal(m.Model):
		return fmt.Errorf("%w: model is %q; it must be a path inside the bundle", ErrManifest, m.Model)
	}
	return nil
}

// ParseManifest decodes and validates a manifest. A field that it does not know
// is an error, so that a misspelt one is not overlooked.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return Manifest{}, fmt.Errorf("%w: %w; the fields are name, engine, model and description", ErrManifest, err)
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// Bundle is a bundle on this machine.
type Bundle struct {
	// Dir is its directory.
	Dir string
	Manifest
}

// Open finds the bundle of an image below root. The error wraps [ErrImage],
// [ErrNotFound] or [ErrManifest] and says what to do.
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
	dir := filepath.Join(root, path)
	f, err := below.Open(filepath.Join(path, ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w for image %q: %s has no %s; write one with `faas-infer model bundle NAME --root %s --image %s`", ErrNotFound, image, dir, ManifestFile, root, image)
	}
	if err != nil {
		return nil, fmt.Errorf("open the bundle of image %q: %w", image, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("open the bundle of image %q: %w", image, err)
	}
	m, err := ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", image, err)
	}
	b := &Bundle{Dir: dir, Manifest: m}
	if _, err := b.File(m.Model); err != nil {
		return nil, fmt.Errorf("image %q: %w: model: %w", image, ErrManifest, err)
	}
	return b, nil
}

// ModelPath is the path of the manifest's model.
func (b *Bundle) ModelPath() string { return filepath.Join(b.Dir, b.Model) }

// File is the path of a file in the bundle, for a function that names another
// model than the manifest. A name that leads out of the bundle, also by a
// symbolic link, and one that is no regular file are errors.
func (b *Bundle) File(name string) (string, error) {
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		return "", fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	info, err := inside.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the bundle has no file %q: %w", name, err)
	case err != nil:
		return "", fmt.Errorf("file %q of the bundle: %w", name, err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%q in the bundle is not a file", name)
	}
	return filepath.Join(b.Dir, name), nil
}

// Path is the directory of an image relative to the root: registry host and
// slashes are its parts, and the tag, "latest" if there is none, is its last.
func Path(image string) (string, error) {
	name, tag := image, "latest"
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		name, tag = image[:at], image[at+1:]
	}
	if strings.ContainsRune(image, '@') {
		return "", fmt.Errorf("%w %q: a bundle is a directory and has no digest; name it by a tag", ErrImage, image)
	}
	for _, part := range append(strings.Split(name, "/"), tag) {
		if !validPart(part) {
			return "", fmt.Errorf("%w %q: %q is not letters, digits, '.', '_', '-' that begin with a letter, digit or '_'", ErrImage, image, part)
		}
	}
	path := filepath.Join(filepath.FromSlash(name), tag)
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("%w %q: it leads out of the directory of bundles", ErrImage, image)
	}
	return path, nil
}

func validPart(part string) bool {
	for i, r := range part {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
		// A registry's host may have a port.
		if !letter && (i == 0 || r != '.' && r != '-' && r != ':') {
			return false
		}
	}
	return part != "" && len(part) <= 255
}
