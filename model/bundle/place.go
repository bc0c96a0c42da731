package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// StagingDir is the directory below the root in which new directories are made
// and replaced ones wait for those who use them.
const StagingDir = ".staging"

// Staged is a directory that is being made. Nobody sees it before [Staged.Live].
type Staged struct {
	// Dir is its path, for its maker to write in.
	Dir  string
	root string
	held *os.File
}

// NewStaged makes an empty directory below the root's staging directory, and removes
// what is no longer used there. Whoever calls it calls [Staged.Discard] in the
// end.
func NewStaged(root string) (*Staged, error) {
	// Files of another user that this one may not remove do not matter.
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
			continue // Somebody swept it before it was held.
		}
		if err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
		return &Staged{Dir: dir, root: root, held: held}, nil
	}
}

// Live puts the directory in the place of the one at path, which is relative to
// the root, and returns when that will survive a power failure. There may be
// nothing, an empty directory, or a directory that replaceable, called on its
// path, lets go; nil lets everything go.
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
	// All that was written into it comes before its name does.
	if err := s.sync(); err != nil {
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

// sync writes the directory and all in it to the disk: one by one if there are
// few, and else all that the file system has yet to write, which takes long
// where somebody else writes much.
func (s *Staged) sync() error {
	var names []string
	err := filepath.WalkDir(s.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if len(names) == fewFiles {
			return errMany
		}
		if e.IsDir() || e.Type().IsRegular() {
			names = append(names, name)
		}
		return nil
	})
	if errors.Is(err, errMany) {
		return unix.Syncfs(int(s.held.Fd()))
	}
	for _, name := range names {
		if err == nil {
			err = syncFile(name)
		}
	}
	return err
}

// fewFiles is how many files are written to the disk one by one.
const fewFiles = 64

var errMany = errors.New("many files")

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// exchange renames the directory to name in parent. What is there is taken out
// in the same instant.
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
			return fmt.Errorf("the file system of %s cannot exchange two directories at once (%w); use another one", s.root, err)
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

// Discard ends the making. What is not live, and a directory that was replaced
// and is not in use, is removed.
func (s *Staged) Discard() error {
	if err := s.held.Close(); err != nil {
		return err
	}
	return sweep(s.Dir)
}

// Hold keeps the directory from being removed after it was replaced, until the
// file is closed in this process and in all that inherited it. A directory that
// is not there is an error that wraps [fs.ErrNotExist].
func Hold(dir string) (*os.File, error) {
	for {
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("hold the directory: %w", err)
		}
		if err := flock(f, unix.LOCK_SH); err != nil {
			return nil, errors.Join(fmt.Errorf("hold the directory %s: %w", dir, err), f.Close())
		}
		// It may have been replaced and removed before it was held.
		held, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(dir); err == nil && os.SameFile(held, now) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// Sweep removes from the root's staging directory what nobody holds: what a
// crash left half made, and replaced directories that are no longer used.
func Sweep(root string) error {
	staging := filepath.Join(root, StagingDir)
	entries, err := os.ReadDir(staging)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep replaced directories: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, sweep(filepath.Join(staging, e.Name())))
	}
	return errors.Join(errs...)
}

// sweep removes what is at path unless somebody holds it.
func sweep(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ELOOP): // A symbolic link was in the place.
		return os.Remove(path)
	case err != nil:
		return fmt.Errorf("sweep replaced directories: %w", err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return fmt.Errorf("sweep %s: %w", path, err)
	}
	return removeAll(path)
}

// removeAll is os.RemoveAll also where a directory in the tree lacks the rights.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove a replaced directory: %w", err)
	}
	return nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
