package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/faas-infer/faas-infer/model"
)

// modelFile is the model's name in the bundles that this package writes.
const modelFile = "model.onnx"

// Write makes the bundle of an image below root from a model, in the place of
// the one that is there, if any. The manifest's engine and model are filled in;
// its name and description, where empty, are the model's. Whoever opens the
// bundle meanwhile finds the old one, the new one or, for an instant, none.
func Write(root, image string, manifest Manifest, m *model.Model) (*Bundle, error) {
	manifest = manifest.describe(m)
	return write(root, image, manifest, func(dir string) error {
		return m.WriteFile(filepath.Join(dir, modelFile))
	})
}

// WriteFile is [Write] for the ONNX file at path, which is copied with the
// files in which it keeps weights. It must have a dynamic batch dimension.
func WriteFile(root, image string, manifest Manifest, path string) (*Bundle, error) {
	m, err := model.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if _, err := m.Graph(1); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	manifest = manifest.describe(m)
	return write(root, image, manifest, func(dir string) error {
		if err := copyFile(filepath.Join(dir, modelFile), path); err != nil {
			return err
		}
		for _, name := range m.ExternalFiles() {
			if err := copyFile(filepath.Join(dir, name), filepath.Join(filepath.Dir(path), name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// describe fills in what a person left out.
func (m Manifest) describe(from *model.Model) Manifest {
	if m.Name == "" {
		m.Name = from.Name()
	}
	if m.Description == "" {
		m.Description = from.Description()
	}
	return m
}

func write(root, image string, manifest Manifest, files func(dir string) error) (*Bundle, error) {
	manifest.Engine, manifest.Model = EngineONNX, modelFile
	path, err := Path(image)
	if err != nil {
		return nil, err
	}
	if err := manifest.Validate(); err != nil {
		return nil, err
	}
	if err := checkPlace(root, path); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	b := &Bundle{Dir: filepath.Join(root, path), Manifest: manifest}
	if err := b.place(files); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	return b, nil
}

// checkPlace refuses a place inside another bundle and one that something else
// than a bundle has taken.
func checkPlace(root, path string) error {
	for above := filepath.Dir(path); above != "."; above = filepath.Dir(above) {
		if _, err := os.Stat(filepath.Join(root, above, ManifestFile)); err == nil {
			return fmt.Errorf("%s is inside the bundle %s; choose another name", path, above)
		}
	}
	dir := filepath.Join(root, path)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has other things in it and no %s; choose another name or remove it", dir, ManifestFile)
	}
	return nil
}

// place writes the bundle beside its directory and renames it there.
func (b *Bundle) place(files func(dir string) error) error {
	parent := filepath.Dir(b.Dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(parent, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := files(fresh); err != nil {
		return err
	}
	text, err := yaml.Marshal(b.Manifest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, ManifestFile), text, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	old := fresh + ".old"
	if err := os.Rename(b.Dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer os.RemoveAll(old)
	if err := os.Rename(fresh, b.Dir); err != nil {
		return errors.Join(err, os.Rename(old, b.Dir))
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
