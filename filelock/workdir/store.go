package workdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Store is a directory of directories that processes make of something else, such as prepared models:
// each once, under a name that says of what it is made. A directory appears as a whole, so readers see
// all of it or nothing. The next Make removes what a killed process has left of one.
type Store struct {
	// Dir is the directory, which Make makes.
	Dir string
	// Work begins the names of directories that are not finished. It begins with a dot.
	Work string
}

// Make makes the directory of a name unless whole reports that it is there. fill writes into a new
// directory, which then moves to its place. If another process was quicker, its directory stays; one
// that is not whole is replaced.
func (s Store) Make(name string, whole func(dir string) bool, fill func(work string) error) (err error) {
	dir := filepath.Join(s.Dir, name)
	if whole(dir) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	Sweep(s.Dir, s.Work+"*")
	work, err := Make(s.Dir, s.Work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	if err := errors.Join(os.Chmod(work.Path, 0o755), fill(work.Path)); err != nil {
		return err
	}
	if err := os.Rename(work.Path, dir); err == nil || whole(dir) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(work.Path, dir)
}

// Exists is a whole of [Store.Make] for directories that are never damaged.
func Exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// RemoveUnused removes the directories that match a pattern of [filepath.Match] and were not used after
// a time: the time of the last use is a directory's time of modification, which [os.Chtimes] notes.
// Nobody finds a directory from the moment at which its removal begins. Open and mapped files stay.
func (s Store) RemoveUnused(pattern string, since time.Time) (removed []string, err error) {
	all, err := filepath.Glob(filepath.Join(s.Dir, pattern))
	for _, dir := range all {
		info, gone := os.Stat(dir)
		if gone != nil || !info.IsDir() || info.ModTime().After(since) {
			continue
		}
		// It is removed later if that fails.
		aside := filepath.Join(s.Dir, s.Work+filepath.Base(dir))
		switch failed := os.Rename(dir, aside); {
		case failed == nil:
			removed = append(removed, dir)
			err = errors.Join(err, os.RemoveAll(aside))
		case !errors.Is(failed, fs.ErrNotExist): // Another process was quicker.
			err = errors.Join(err, failed)
		}
	}
	return removed, err
}
