package operators

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// Repair tells that a damaged database was rewritten from what was whole.
type Repair struct {
	// Path is the database's, Kept where the damaged one is now.
	Path, Kept string
	// Rows is how many were whole, Damage what was not.
	Rows   int
	Damage []database.Damage
}

// String is a sentence for people.
func (r Repair) String() string {
	return fmt.Sprintf("the operator profiles %s were damaged in %d places, first in %v; %d rows were whole and are kept, the damaged file is %s",
		r.Path, len(r.Damage), r.Damage[0], r.Rows, r.Kept)
}

// repair puts a file of what is whole in the place of the locked one. A kill at
// any point leaves the one or the other there.
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
	f.said(Repair{Path: f.path, Kept: kept, Rows: db.Len(), Damage: damage})
	return nil
}

// maxKept bounds how many damaged files are kept beside a database.
const maxKept = 100

// keep writes data beside path, under a name that is free.
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
	return "", fmt.Errorf("there are %d damaged files beside it: remove them, and look after the disk", maxKept)
}

// Replace puts a file with this content at path, whole and at once, in place of
// what is there, and returns when the disk has it.
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
