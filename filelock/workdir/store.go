package workdir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/filelock"
)

// Store is a directory of directories that processes make of something else, such as prepared models:
// each once, under a name that says of what it is made. A directory appears as a whole, so readers see
// all of it or nothing. What a killed process has left of one is removed when the next is made.
type Store struct {
	// Dir is the directory, which Make makes.
	Dir string
	// Durable is set if readers do not notice files that a power failure has shortened: the content is then on the
	// disk before the name is. That takes long for large ones.
	Durable bool
}

// unfinished begins the names of directories that are not finished, or not removed yet.
const unfinished = ".unfinished-"

// swept are the names of unfinished directories, those that earlier versions gave, too.
var swept = []string{
	unfinished + "*", ".prepare-*", ".link-*", ".lay-out-*", ".plans-*", ".parts-*", ".make-*", ".cuda-*",
	".[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-*",
}

// Make makes the directory of a name unless whole reports that it is there. fill writes into a new
// directory, which then moves to its place. One that is there and not whole is replaced. If another process
// of this user makes it, Make waits for that until ctx ends, and makes it if the other one fails.
func (s Store) Make(ctx context.Context, name string, whole func(dir string) bool, fill func(work string) error) (err error) {
	dir := filepath.Join(s.Dir, name)
	if whole(dir) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	s.sweep()
	work, err := claim(ctx, filepath.Join(s.Dir, fmt.Sprintf("%s%d-%s", unfinished, os.Getuid(), name)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	if whole(dir) {
		return nil
	}
	if err := fill(work.Path); err != nil {
		return err
	}
	return s.Publish(work, name, whole)
}

// Begin makes a directory for who cannot wait, and does not know yet whether it will be finished: of several that
// make the same, the first one that is published stays. Call [Store.Publish] if it is finished, and [Dir.Remove]
// in the end.
func (s Store) Begin() (*Dir, error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, err
	}
	s.sweep()
	return Make(s.Dir, unfinished)
}

// sweep removes what killed processes have left, and removed directories that nothing holds any more.
func (s Store) sweep() {
	for _, pattern := range swept {
		Sweep(s.Dir, pattern)
	}
}

// claim makes an empty directory at a path and locks it. It waits for a process that has done so, until ctx ends.
func claim(ctx context.Context, path string) (*Dir, error) {
	for {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		held, err := lock(ctx, path, filelock.Exclusive, filelock.Forever)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Who made it has published or removed it.
		}
		if err != nil {
			return nil, err
		}
		d := &Dir{Path: path, held: held}
		left, err := os.ReadDir(path)
		for _, entry := range left { // Of a process that was killed.
			err = errors.Join(err, removeAll(filepath.Join(path, entry.Name())))
		}
		if err != nil {
			return nil, errors.Join(err, d.Remove())
		}
		return d, nil
	}
}

// Publish moves a finished directory to the place of a name, unless one is there that is whole.
func (s Store) Publish(work *Dir, name string, whole func(dir string) bool) error {
	dir := filepath.Join(s.Dir, name)
	if err := os.Chmod(work.Path, 0o755); err != nil {
		return err
	}
	if s.Durable {
		if err := Sync(work.Path); err != nil {
			return fmt.Errorf("write to the disk: %w", err)
		}
	}
	if err := os.Rename(work.Path, dir); err == nil || whole(dir) {
		return nil
	}
	if err := s.remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(work.Path, dir)
}

// Exists is a whole of [Store.Make] for directories that are never damaged.
func Exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// Use notes that a directory is used now. If that fails, it is collected too early and made again.
func Use(dir string, now time.Time) { _ = os.Chtimes(dir, now, now) }

// Collect removes directories that match a pattern of [filepath.Match] and were not used after a time, least
// recently used first, until all that match have at most so many bytes together. maxBytes is -1 to remove all
// unused ones; the sizes are then not added up. freed is the size of the removed ones in bytes. The time of the last use is a directory's time of modification, which [Use] notes. Nobody finds a
// directory from the moment at which its removal begins. Open and mapped files stay, and so do the files of one that
// a process holds: they are removed by a later call.
func (s Store) Collect(pattern string, since time.Time, maxBytes int64) (removed []string, freed int64, err error) {
	all, total, err := s.list(pattern, maxBytes >= 0)
	for _, c := range all {
		if total-freed <= maxBytes || c.used.After(since) {
			break
		}
		if now, gone := os.Stat(c.dir); gone != nil || now.ModTime().After(since) {
			continue // Another process was quicker, or uses it again.
		}
		switch failed := s.remove(c.dir); {
		case failed == nil:
			removed, freed = append(removed, c.dir), freed+c.bytes
		case !errors.Is(failed, fs.ErrNotExist):
			err = errors.Join(err, failed)
		}
	}
	s.sweep()
	return removed, freed, err
}

// kept is a directory of a store.
type kept struct {
	dir   string
	bytes int64
	used  time.Time
}

// list lists the directories that match a pattern, least recently used first, with their sizes if weigh says so.
func (s Store) list(pattern string, weigh bool) (all []kept, total int64, err error) {
	found, err := filepath.Glob(filepath.Join(s.Dir, pattern))
	for _, dir := range found {
		info, gone := os.Lstat(dir)
		if gone != nil || !info.IsDir() || strings.HasPrefix(filepath.Base(dir), ".") {
			continue
		}
		c := kept{dir: dir, used: info.ModTime()}
		if weigh {
			c.bytes = Size(dir)
		}
		all, total = append(all, c), total+c.bytes
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.dir, b.dir)) })
	return all, total, err
}

// Size is the size of all files below a directory in bytes, as far as they are there.
func Size(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, gone := e.Info(); gone == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// remove takes a directory out of its place, and removes it unless a process holds it. Its place is empty at once.
func (s Store) remove(dir string) error {
	// It may be made and removed again while it is held, so the name differs each time.
	aside := filepath.Join(s.Dir, unfinished+rand.Text())
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	_, err := RemoveUnheld(aside)
	return err
}
