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
)

// StagingDir is the directory below the root for new directories that are not
// complete, and for replaced ones that are still in use.
const StagingDir = ".staging"

// Staged is a new directory. It is invisible below the root until [Staged.Live].
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

// sync writes the directory and its content to the disk. It syncs a few files one
// by one. For more it syncs the whole file system, which takes long if other
// processes write much.
func (s *Staged) sync() error {
	var names []string
	err := filepath.WalkDir(s.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if len(names) == maxSingleSyncs {
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

// maxSingleSyncs is the maximum number of files and directories that are synced one
// by one.
const maxSingleSyncs = 64

var errMany = errors.New("many files")

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
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
	for {
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("hold the directory: %w", err)
		}
		if err := filelock.Lock(context.Background(), f, filelock.Shared, filelock.Forever); err != nil {
			return nil, errors.Join(fmt.Errorf("hold the directory %s: %w", dir, err), f.Close())
		}
		// Another process may have replaced and removed it before it was held.
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

// Sweep removes everything from the root's staging directory that no process holds:
// incomplete directories that a crash left, and replaced directories that are no
// longer in use.
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

// sweep removes the directory at path unless a process holds it.
func sweep(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ELOOP): // It is a symbolic link that was replaced.
		return removeAll(path)
	case err != nil:
		return fmt.Errorf("sweep replaced directories: %w", err)
	}
	defer f.Close()
	return removeUnheld(path, f)
}

// removeUnheld removes the directory at path, which f has opened, unless a process holds it.
func removeUnheld(path string, f *os.File) error {
	if err := filelock.Try(f, filelock.Exclusive); errors.Is(err, filelock.ErrLocked) {
		return nil
	} else if err != nil {
		return fmt.Errorf("sweep %s: %w", path, err)
	}
	// Live may have exchanged f with another directory before f was locked. f is then the live
	// one, and the path is that of the replaced one, which others may hold. Whoever exchanged
	// them sweeps it. From now on f stays at the path: Live needs its lock to exchange it.
	locked, err := f.Stat()
	if err != nil {
		return fmt.Errorf("sweep %s: %w", path, err)
	}
	now, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("sweep replaced directories: %w", err)
	case !os.SameFile(locked, now):
		return nil
	}
	return removeAll(path)
}

// removeAll is os.RemoveAll, even for directories without write permission.
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
