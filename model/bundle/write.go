package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/model"
)

// modelFile is the model's name in the bundles that this package writes.
const modelFile = "model.onnx"

// Write makes the bundle of an image below root from a model, and replaces an
// existing one. It fills in the manifest's engine and model. An empty name or
// description becomes the model's. A concurrent [Open] finds the old bundle or the
// new one.
func Write(root, image string, manifest Manifest, m *model.Model) (*Bundle, error) {
	manifest = manifest.describe(m)
	return write(root, image, manifest, func(dir string) error {
		return m.WriteFile(filepath.Join(dir, modelFile))
	})
}

// WriteFile is [Write] for the ONNX file at path. It copies the file, its files of external
// weights and [LabelsFile] beside it.
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
		labels := filepath.Join(filepath.Dir(path), LabelsFile)
		if _, err := os.Stat(labels); err == nil {
			return copyFile(filepath.Join(dir, LabelsFile), labels)
		}
		return nil
	})
}

// describe takes a missing name or description from the model.
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
	return WriteFiles(root, image, manifest, files)
}

// WriteFiles makes the bundle of an image below root, and replaces an existing one.
// It writes the manifest; files writes everything else into the directory.
func WriteFiles(root, image string, manifest Manifest, files func(dir string) error) (_ *Bundle, err error) {
	if _, err := Path(image); err != nil {
		return nil, err
	}
	if err := manifest.Validate(); err != nil {
		return nil, err
	}
	staged, err := NewStaged(root)
	if err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	defer func() { err = errors.Join(err, staged.Discard()) }()
	if err := files(staged.Dir); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	if err := manifest.WriteFile(staged.Dir); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	return Install(root, image, staged)
}

// WriteDir makes the bundle of an image below root from a copy of the directory
// from. The set fields of over replace those of the directory's manifest, if it has
// one. The default name is the image's.
func WriteDir(root, image, from string, over Manifest) (*Bundle, error) {
	if err := apart(root, from); err != nil {
		return nil, err
	}
	path, err := Path(image)
	if err != nil {
		return nil, err
	}
	inside, err := os.OpenRoot(from)
	if err != nil {
		return nil, fmt.Errorf("the bundle's directory: %w", err)
	}
	defer inside.Close()
	manifest, err := readManifest(inside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	manifest = manifest.with(over)
	if manifest.Name == "" {
		manifest.Name = filepath.Base(filepath.Dir(path))
	}
	return WriteFiles(root, image, manifest, func(dir string) error { return os.CopyFS(dir, inside.FS()) })
}

// apart refuses a copy that would contain itself.
func apart(root, from string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	from, err = filepath.Abs(from)
	if err != nil {
		return err
	}
	if below, err := filepath.Rel(from, root); err == nil && filepath.IsLocal(below) {
		return fmt.Errorf("the directory %s contains the directory of bundles, %s, so it cannot be copied there; give another one", from, root)
	}
	return nil
}

// with is the manifest with the set fields of over.
func (m Manifest) with(over Manifest) Manifest {
	for _, field := range []struct{ to, from *string }{
		{&m.Name, &over.Name}, {&m.Description, &over.Description}, {&m.Process, &over.Process},
		{&m.Mode, &over.Mode}, {&m.UpstreamURL, &over.UpstreamURL}, {&m.Network, &over.Network},
	} {
		if *field.from != "" {
			*field.to = *field.from
		}
	}
	if len(over.Env) > 0 {
		m.Env = maps.Clone(m.Env)
		if m.Env == nil {
			m.Env = make(map[string]string)
		}
		maps.Copy(m.Env, over.Env)
	}
	return m
}

// WriteFile writes the manifest into a bundle's directory.
func (m Manifest) WriteFile(dir string) error {
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ManifestFile), text, 0o644)
}

// WriteName adds a name to the manifest in a bundle's directory if it has none. It
// leaves an invalid manifest alone; [OpenDir] reports it.
func WriteName(dir, name string) error {
	file := filepath.Join(dir, ManifestFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if m, err := ParseManifest(text); err != nil || m.Name != "" {
		return nil
	}
	named := append(fmt.Appendf(nil, "name: %q\n", name), text...)
	if m, err := ParseManifest(named); err != nil || m.Engine+m.Process == "" {
		return nil // A manifest in another YAML style goes without a name.
	}
	return os.WriteFile(file, named, 0o644)
}

// Install makes a staged directory the bundle of an image below root, and replaces
// an existing one. A concurrent [Open] finds the old bundle or the new one. Install
// refuses a directory that is not a bundle, a place inside another bundle, and a
// place that holds something else.
func Install(root, image string, staged *Staged) (*Bundle, error) {
	path, err := Path(image)
	if err != nil {
		return nil, err
	}
	b, err := OpenDir(staged.Dir)
	if err != nil {
		return nil, err
	}
	for above := filepath.Dir(path); above != "."; above = filepath.Dir(above) {
		if _, err := os.Stat(filepath.Join(root, above, ManifestFile)); err == nil {
			return nil, fmt.Errorf("write the bundle of image %q: %s is inside the bundle %s; choose another name", image, path, above)
		}
	}
	// Instances may run as another user than the one that made the directory.
	if err := os.Chmod(staged.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	if err := staged.Live(path, replaceable); err != nil {
		return nil, fmt.Errorf("write the bundle of image %q: %w", image, err)
	}
	b.Dir = filepath.Join(root, path)
	return b, nil
}

// replaceable allows only bundles to be replaced.
func replaceable(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err != nil {
		return fmt.Errorf("%s holds other files and no %s; choose another name or remove it", dir, ManifestFile)
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

// WriteFolder makes the bundle of an image below root from the files of a folder that has no manifest of its own. It
// copies those that use admits, by their names relative to the folder, and what links to files lead to. Hidden folders
// are left out. check may refuse the result before it takes the image's place. The default name is the image's.
func WriteFolder(
	root, image, from string, m Manifest, use func(name string) bool, check func(dir string) error,
) (*Bundle, error) {
	if err := apart(root, from); err != nil {
		return nil, err
	}
	place, err := Path(image)
	if err != nil {
		return nil, err
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return nil, fmt.Errorf("the bundle's directory: %w", err)
	}
	m.Name = cmp.Or(m.Name, filepath.Base(filepath.Dir(place)))
	return WriteFiles(root, image, m, func(dir string) error {
		err := filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
			name, _ := filepath.Rel(from, file)
			switch {
			case err != nil:
				return err
			case e.IsDir() && name != "." && e.Name()[0] == '.':
				return filepath.SkipDir
			case e.IsDir() || !use(filepath.ToSlash(name)):
				return nil
			}
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				return err // A pipe, or a link to a folder.
			}
			return copyFile(filepath.Join(dir, name), file)
		})
		if err != nil {
			return err
		}
		return check(dir)
	})
}
