package infaas

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/control"
)

// registrations says where the registered variants of a bundle's models are.
type registrations struct {
	// Dirs are the directories to look in, the first one first.
	Dirs []string
	// Hash identifies a file's content as [model.ContentHash] does.
	Hash func(file string) (string, error)
	// Remade: for com.openfaas.infer.variants: auto the provider makes a registration that is
	// missing or bad.
	Remade bool
}

// registered is a registration of the models as they are now.
type registered struct {
	*registration.Registration
	// dir has variants.yaml and the generated models.
	dir string
}

// maxRegistration is the maximum size of a variants.yaml in bytes. One variant takes 500.
const maxRegistration = 1 << 20

// Find returns the directory with a registration of the bundle's models as they are now, "" if
// there is none. The error is about the first registration that is not valid.
func (r registrations) Find(b *bundle.Bundle) (dir string, err error) {
	found, err := r.find(b)
	if found == nil {
		return "", err
	}
	return found.dir, nil
}

func (r registrations) find(b *bundle.Bundle) (*registered, error) {
	var bad error
	for _, dir := range r.Dirs {
		found, err := r.read(dir, b)
		switch {
		case err == nil:
			return found, nil
		case bad == nil && !errors.Is(err, errUnregistered):
			bad = err
		}
	}
	return nil, bad
}

// errUnregistered: a directory has no variants.yaml.
var errUnregistered = errors.New("no variants are registered")

// read reads and checks one registration. An error names the file.
func (r registrations) read(dir string, b *bundle.Bundle) (*registered, error) {
	name := filepath.Join(dir, registration.File)
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errUnregistered
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRegistration))
	if err != nil {
		return nil, err
	}
	found, err := registration.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make it again with faas-infer model variants", name, err)
	}
	one := &registered{found, dir}
	if err := r.check(one, b); err != nil {
		return nil, fmt.Errorf("%s: %w; make it again with faas-infer model variants", name, err)
	}
	return one, nil
}

// check returns an error unless all models and no others are registered, with the files as they
// are now.
func (r registrations) check(one *registered, b *bundle.Bundle) error {
	models := b.Registered()
	for _, m := range models {
		if !slices.ContainsFunc(one.Variants, func(v registration.Registered) bool { return !v.Generated && v.Name == m.Name }) {
			return fmt.Errorf("it does not have the bundle's model %s", m.Name)
		}
	}
	for i := range one.Variants {
		v := &one.Variants[i]
		m := slices.IndexFunc(models, func(m bundle.ManifestModel) bool { return m.Name == v.Model })
		if m < 0 || !v.Generated && v.Name != v.Model {
			return fmt.Errorf("it has variants of %s, and the bundle has no such model", v.Model)
		}
		if v.Generated && slices.ContainsFunc(models, func(m bundle.ManifestModel) bool { return m.Name == v.Name }) {
			return fmt.Errorf("its variant %s has the name of a model of the bundle", v.Name)
		}
		path := filepath.Join(one.dir, v.File)
		if !v.Generated {
			path = filepath.Join(b.Dir, models[m].Model)
		} else if v.File != filepath.Base(v.File) {
			return fmt.Errorf("the file of %s is %q; it must be beside %s", v.Name, v.File, registration.File)
		}
		hash, err := r.Hash(path)
		if err != nil {
			return fmt.Errorf("variant %s: %w", v.Name, err)
		}
		if hash != v.Hash {
			return fmt.Errorf("%s is another file than the one that was registered as %s", path, v.Name)
		}
	}
	return nil
}

// accuracy is the measured accuracy of a model, as far as that is known, otherwise what its
// author states.
func (one *registered) accuracy(m bundle.ManifestModel) float64 {
	if one != nil {
		for i := range one.Variants {
			if v := &one.Variants[i]; v.Name == m.Name && v.Accuracy != nil {
				return v.Accuracy.Value
			}
		}
	}
	if m.Accuracy != nil {
		return *m.Accuracy
	}
	return 0
}

// generated lists the generated variants of a model.
func (one *registered) generated(of control.Model) (models []control.Model) {
	if one == nil {
		return nil
	}
	for i := range one.Variants {
		if v := &one.Variants[i]; v.Generated && v.Model == of.Name {
			models = append(models, control.Model{Name: v.Name, Of: of.Name, File: filepath.Join(one.dir, v.File), Images: of.Images, Accuracy: v.Percent()})
		}
	}
	return models
}
