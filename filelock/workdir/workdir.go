// Package workdir makes directories for unfinished work and removes those of processes that
// were killed. A lock tells them apart: the kernel releases it with the process, so a reused
// process ID misleads nobody. It says nothing about what is in the directories. Begin
// reading at [Make]; [Store] keeps what is finished.
package workdir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

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

// Remove removes the directory and what is left in it, and releases the lock.
func (d *Dir) Remove() error { return errors.Join(os.RemoveAll(d.Path), d.held.Close()) }

// Sweep removes the directories below parent that Make made in processes that have ended.
// pattern is that of their names for [filepath.Match]. Sweep leaves the directories of other
// users and any that it cannot remove: nothing depends on it. It returns those that it removed.
func Sweep(parent, pattern string) (removed []string) {
	if parent == "" {
		parent = os.TempDir()
	}
	all, _ := os.ReadDir(parent)
	for _, entry := range all {
		path := filepath.Join(parent, entry.Name())
		if match, _ := filepath.Match(pattern, entry.Name()); match && entry.IsDir() && sweep(path) {
			removed = append(removed, path)
		}
	}
	return removed
}

// sweep reports whether it removed the directory.
func sweep(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || time.Since(info.ModTime()) < grace || filelock.Try(f, filelock.Exclusive) != nil {
		return false
	}
	return os.RemoveAll(path) == nil
}
