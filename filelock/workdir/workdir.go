// Package workdir makes directories for unfinished work, keeps those that are finished, and removes those of
// killed processes and those that nothing uses any more. A lock says who works in a directory or uses it: the
// kernel releases it with the process, so a reused process ID misleads nobody. The package does not know what is
// in the directories. Begin reading at [Store], and at [Make] for temporary ones.
package workdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
)

// grace is the age from which an unlocked directory counts as left behind. A younger one may
// have been made a moment ago and not be locked yet.
const grace = time.Minute

// Dir is a directory that this process works in.
type Dir struct {
	// Path is the directory. Its owner may rename it to where the finished work belongs.
	Path string
	held *os.File
}

// Make makes and locks a directory below parent, whose name begins with prefix. An empty parent
// is the default directory of temporary files. Call [Dir.Remove] in the end.
func Make(parent, prefix string) (*Dir, error) {
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	held, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	d := &Dir{Path: path, held: held}
	if err := filelock.Try(held, filelock.Exclusive); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// Remove removes the directory and what is left in it, unless it was renamed, and releases the lock. Another process may
// already have made one of its own at the path of a renamed one.
func (d *Dir) Remove() error {
	stays, err := isAt(d.held, d.Path)
	if stays {
		err = os.RemoveAll(d.Path)
	}
	return errors.Join(err, d.held.Close())
}

// Hold holds a directory until the file is closed in this process and in all that inherited it: [RemoveUnheld]
// leaves it then, and so does a [Store] that has no more need of it. Hold waits so long for a process that makes
// or removes the directory. The error for a missing one wraps [fs.ErrNotExist].
func Hold(ctx context.Context, path string, wait time.Duration) (*os.File, error) {
	return lock(ctx, path, filelock.Shared, wait)
}

// lock opens and locks what is at a path. It begins again if that was moved or removed before it was locked.
func lock(ctx context.Context, path string, mode filelock.Mode, wait time.Duration) (*os.File, error) {
	for {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		stays := false
		if err = filelock.Lock(ctx, f, mode, wait); err == nil {
			stays, err = isAt(f, path)
		}
		if stays {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// isAt reports whether an open file still is the one at a path.
func isAt(f *os.File, path string) (bool, error) {
	is, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(is, now), err
}

// Sweep removes the directories below parent that Make made in processes that have ended.
// pattern is that of their names for [filepath.Match]. Sweep leaves the directories of other
// users and any that it cannot remove: nothing depends on it. It returns those that it removed.
func Sweep(parent, pattern string) (removed []string) {
	if parent == "" {
		parent = os.TempDir()
	}
	all, _ := os.ReadDir(parent)
	for _, entry := range all {
		match, _ := filepath.Match(pattern, entry.Name())
		if info, err := entry.Info(); !match || !entry.IsDir() || err != nil || time.Since(info.ModTime()) < grace {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		if gone, err := RemoveUnheld(path); gone && err == nil {
			removed = append(removed, path)
		}
	}
	return removed
}

// RemoveUnheld removes what is at a path, of whatever kind and age, unless a process holds it. It reports whether
// nothing is there any more.
func RemoveUnheld(path string) (gone bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.ELOOP): // It is a symbolic link.
		return true, os.Remove(path)
	case err != nil:
		return false, err
	}
	defer f.Close()
	return removeUnheld(path, f)
}

// removeUnheld is RemoveUnheld of what f has opened. Another process may have moved something else to the path
// before f was locked: others may hold that, and the one who moved it removes it. Once f is locked it stays there.
func removeUnheld(path string, f *os.File) (gone bool, err error) {
	if err := filelock.Try(f, filelock.Exclusive); errors.Is(err, filelock.ErrLocked) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	if stays, err := isAt(f, path); !stays {
		return false, err
	}
	return true, removeAll(path)
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
	return os.RemoveAll(path)
}

// maxSingleSyncs is the maximum number of files and directories that are synced one by one.
const maxSingleSyncs = 64

var errMany = errors.New("many files")

// Sync writes a directory and its content to the disk. It syncs a few files one by one. For more it syncs the
// whole file system, which takes long if other processes write much.
func Sync(dir string) error {
	var names []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
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
	many := errors.Is(err, errMany)
	if many {
		names, err = []string{dir}, nil
	}
	for _, name := range names {
		if err == nil {
			err = syncFile(name, many)
		}
	}
	return err
}

// syncFile writes a file or directory to the disk, or all of its file system.
func syncFile(name string, all bool) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	sync := f.Sync
	if all {
		sync = func() error { return unix.Syncfs(int(f.Fd())) }
	}
	return errors.Join(sync(), f.Close())
}
