package textmodel

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// Write makes the bundle of an image below root from a folder that [Recognise] has read, without the files that the
// model does not need. Links are followed, as in the cache of a hub's client. The set fields Name and Description
// of over replace those of the folder's manifest. The error is that of [Check], or of the bundle.
func Write(root, image, from string, f *Folder, over bundle.Manifest) (*bundle.Bundle, error) {
	m := f.Manifest
	m.Name, m.Description = cmp.Or(over.Name, m.Name), cmp.Or(over.Description, m.Description)
	use := func(name string) bool { return !slices.Contains(f.Unused, name) }
	return bundle.WriteFolder(root, image, from, m, use, func(dir string) error {
		if m.Text == nil {
			return nil
		}
		return Check(dir, m.Text, filepath.Join(dir, m.Model), 0)
	})
}
