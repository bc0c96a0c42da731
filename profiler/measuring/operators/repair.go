package operators

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// Repair describes the repair of a damaged database.
type Repair struct {
	// Path is the database's path, Kept that of the damaged file.
	Path, Kept string
	// Rows is the number of complete rows. Damage is the rest.
	Rows   int
	Damage []database.Damage
}

// String is a sentence for people.
func (r Repair) String() string {
	return fmt.Sprintf("the operator profiles %s were damaged in %d places, first in %v; %d complete rows are kept, the damaged file is %s",
		r.Path, len(r.Damage), r.Damage[0], r.Rows, r.Kept)
}

// repair replaces the locked file by one of its complete rows. A kill at any point leaves
// one of the two files there.
func (f *File) repair() error {
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	data, err := readFrom(f.f, 0, info.Size())
	if err != nil {
		return err
	}
	db, damage, err := database.Decode(data)
	if err != nil || len(damage) == 0 {
		return err
	}
	whole, err := database.Repair(data)
	if err != nil {
		return err
	}
	kept, err := keep(f.path, data, info.Mode().Perm())
	if err == nil {
		err = Replace(f.path, whole, info.Mode().Perm())
	}
	if err != nil {
		return fmt.Errorf("the file is damaged (%v) and cannot be repaired: %w", damage[0], err)
	}
	f.repaired(Repair{Path: f.path, Kept: kept, Rows: db.Len(), Damage: damage})
	return nil
}

// maxKept is the maximum number of damaged files beside a database.
const maxKept = 100

// keep writes data beside path, under an unused name.
func keep(path string, data []byte, mode os.FileMode) (string, error) {
	for n := 1; n <= maxKept; n++ {
		name := path + ".damaged"
		if n > 1 {
			name = fmt.Sprintf("%s.%d", name, n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return "", errors.Join(err, os.Remove(name))
		}
		return name, nil
	}
	return "", fmt.Errorf("there are %d damaged files beside it; remove them and check the disk", maxKept)
}

// Replace atomically replaces the file at path by one with this content. It returns when
// that is on the disk.
func Replace(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
