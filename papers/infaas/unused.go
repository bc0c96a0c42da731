package infaas

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/bundles"
)

// Tidy implements [bundles.Variants]: it removes the variants that the provider has made and that nothing has
// used for [bundles.UnusedFor]. A function uses those of its image, unless the models have changed since or the user has made others;
// an instance uses the one that it has loaded. The time of the last use is the directory's time of
// modification, so a restart does not change it. images are those of all functions.
func (v *Variants) Tidy(now time.Time, images []string, running []cluster.Instance) (removed []string, err error) {
	root := filepath.Join(v.State, registration.Dir)
	dirs, err := registeredBelow(root)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, image := range images {
		if path, err := bundle.Path(image); err == nil {
			wanted[path] = image
		}
	}
	var errs []error
	for _, path := range dirs {
		dir := filepath.Join(root, path)
		image, has := wanted[path]
		if has && v.finds(image, dir) || loaded(dir, filepath.Join(string(v.Bundles), path), running) {
			errs = append(errs, os.Chtimes(dir, now, now))
			continue
		}
		v.jobs.Idle(func() {
			gone, err := removeUnused(root, path, now.Add(-bundles.UnusedFor))
			if errs = append(errs, err); gone {
				removed = append(removed, dir)
			}
		})
	}
	return removed, errors.Join(errs...)
}

// Used implements [bundles.Variants]: the function may find variants of the provider's own. If they are
// removed at this moment, it does not find them.
func (v *Variants) Used(b *bundle.Bundle) {
	v.jobs.Exclude(func() {
		now := time.Now()
		_ = os.Chtimes(v.own(b), now, now) // There are none.
	})
}

// finds reports whether a function of the image gets its variants from the directory. It does, if its
// bundle cannot be read now.
func (v *Variants) finds(image, dir string) bool {
	b, err := bundle.Open(string(v.Bundles), image)
	if err != nil {
		return true
	}
	found, err := v.registrations(b).Find(b)
	unread := new(fs.PathError)
	return found == dir || errors.As(err, &unread) && !errors.Is(err, fs.ErrNotExist)
}

// loaded reports whether an instance has loaded a generated variant of the directory.
func loaded(dir, bundle string, running []cluster.Instance) bool {
	text, err := os.ReadFile(filepath.Join(dir, registration.File))
	if err != nil {
		return false
	}
	known, err := registration.Read(text)
	return err == nil && slices.ContainsFunc(known.Variants, func(one registration.Registered) bool {
		return one.Generated && slices.ContainsFunc(running, func(in cluster.Instance) bool {
			return in.Artefact.Bundle == bundle && in.Artefact.Name == one.Name
		})
	})
}

// registeredBelow lists the directories with files below one, as paths relative to it. Directories
// whose names begin with a dot belong to their parent.
func registeredBelow(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if name == root || err != nil {
			return err
		}
		parent, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		if hidden := strings.HasPrefix(e.Name(), "."); hidden || !e.IsDir() {
			if !slices.Contains(dirs, parent) {
				dirs = append(dirs, parent)
			}
			if hidden && e.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return dirs, err
}

// removeUnused removes a directory below root that was not used after a time, unless another process
// makes variants there, and its parents if nothing else is in them. Directories of other images may
// be below it.
func removeUnused(root, path string, after time.Time) (gone bool, err error) {
	dir := filepath.Join(root, path)
	info, err := os.Stat(dir)
	if err != nil || info.ModTime().After(after) {
		return false, err
	}
	lock, err := LockDir(dir)
	if errors.Is(err, ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	// The description comes first, so that it never names a file that is not there.
	if err := os.Remove(filepath.Join(dir, registration.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return false, err
		}
	}
	for ; path != "."; path = filepath.Dir(path) {
		if os.Remove(filepath.Join(root, path)) != nil { // It is not empty.
			break
		}
	}
	return true, nil
}
