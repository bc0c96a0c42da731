package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// StagingDir is the directory below the root for new directories that are not
// complete, and for replaced ones that are still in use.
const StagingDir = ".staging"

// Staged is a new directory. It is invisible below the root until [Staged.Live]. A [workdir.Store] is for what follows
// from its name. A bundle is replaced under the same name, at once and while processes run from the one before.
type Staged struct {
	// Dir is its path. The caller writes the content there.
	Dir  string
	root string
	held *os.File
}

// NewStaged makes an empty directory below the root's staging directory, and removes
// unused directories there. The caller must call [Staged.Discard] in the end.
func NewStaged(root string) (*Staged, error) {
	// Files of another user cannot always be removed. That does not matter.
	_ = Sweep(root)
	staging := filepath.Join(root, StagingDir)
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return nil, fmt.Errorf("make a new directory: %w", err)
	}
	for {
		dir, err := os.MkdirTemp(staging, "new-*")
		if err != nil {
			return nil, fmt.Errorf("make a new directory: %w", err)
		}
		held, err := Hold(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Another process swept it before it was held.
		}
		if err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
		return &Staged{Dir: dir, root: root, held: held}, nil
	}
}

// Live puts the directory at path, which is relative to the root. It returns when
// the change will survive a power failure. It replaces an empty directory, and
// anything else for whose path replaceable returns nil. A nil replaceable allows
// everything.
func (s *Staged) Live(path string, replaceable func(dir string) error) error {
	if err := s.live(path, replaceable); err != nil {
		return fmt.Errorf("put %s in its place: %w", path, err)
	}
	return nil
}

func (s *Staged) live(path string, replaceable func(dir string) error) error {
	if !filepath.IsLocal(path) {
		return fmt.Errorf("%q leads out of %s", path, s.root)
	}
	// The content must be on the disk before the name is.
	if err := workdir.Sync(s.Dir); err != nil {
		return fmt.Errorf("write to the disk: %w", err)
	}
	below, err := os.OpenRoot(s.root)
	if err != nil {
		return err
	}
	defer below.Close()
	parents := filepath.Dir(path)
	if err := below.MkdirAll(parents, 0o755); err != nil {
		return err
	}
	parent, err := below.Open(parents)
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := s.exchange(parent, filepath.Base(path), filepath.Join(s.root, path), replaceable); err != nil {
		return err
	}
	return syncUp(below, parents)
}

// exchange renames the directory to name in parent. If something has that name, the
// two are exchanged atomically.
func (s *Staged) exchange(parent *os.File, name, full string, replaceable func(string) error) error {
	to := int(parent.Fd())
	for {
		// A rename replaces an empty directory only.
		err := unix.Renameat(unix.AT_FDCWD, s.Dir, to, name)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		if replaceable != nil {
			if err := replaceable(full); err != nil {
				return err
			}
		}
		err = unix.Renameat2(unix.AT_FDCWD, s.Dir, to, name, unix.RENAME_EXCHANGE)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("the file system of %s cannot exchange two directories atomically (%w); use another file system", s.root, err)
		case !errors.Is(err, unix.ENOENT): // It was removed meanwhile.
			return err
		}
	}
}

// syncUp writes the directory and those above it to the disk, up to the root.
func syncUp(below *os.Root, path string) error {
	for ; ; path = filepath.Dir(path) {
		f, err := below.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("write to the disk: %w", err)
		}
		if path == "." {
			return nil
		}
	}
}

// Discard removes the directory if it is not live. After [Staged.Live] it removes
// the directory that was replaced, unless that is in use.
func (s *Staged) Discard() error {
	if err := s.held.Close(); err != nil {
		return err
	}
	return sweep(s.Dir)
}

// Hold keeps a directory from being removed after it is replaced. It ends when the
// file is closed in this process and in all that inherited it. The error for a
// missing directory wraps [fs.ErrNotExist].
func Hold(dir string) (*os.File, error) {
	f, err := workdir.Hold(context.Background(), dir, filelock.Forever)
	if err != nil {
		return nil, fmt.Errorf("hold the directory: %w", err)
	}
	return f, nil
}

// Sweep removes everything from the root's staging directory that no process holds:
// incomplete directories that a crash left, and replaced directories that are no
// longer in use.
func Sweep(root string) error {
	staging := filepath.Join(root, StagingDir)
	entries, err := os.ReadDir(staging)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, sweep(filepath.Join(staging, e.Name())))
	}
	return errors.Join(errs...)
}

// sweep removes what is at a path unless a process holds it.
func sweep(path string) error {
	if _, err := workdir.RemoveUnheld(path); err != nil {
		return fmt.Errorf("sweep replaced directories: %w", err)
	}
	return nil
}
