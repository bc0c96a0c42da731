package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Contained returns an error if a symbolic link leads out of dir, directly or through
// other links.
func Contained(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink == 0 {
			return err
		}
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		_, err = root.Stat(name)
		if path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the symbolic link %q in the context leads to %q, out of the bundle; put the file there instead", name, target)
		}
		return nil
	})
}
