package copies

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// open is the mode of a namespace's directory. The kubelet gives it to the directories that it makes
	// for pods, whose users may then write there. sealed is that of the node's: no other user of the
	// node gets to what is below.
	open   = 0o777 | fs.ModeSticky
	sealed = 0o700
)

// Tidier keeps a node's directory of copies usable and small. It owns the directory, and trusts nothing
// below a function's directory: it follows no link and reads no file.
type Tidier struct {
	// Root is the node's directory, with one directory for each namespace.
	Root string
	// Namespaces are those whose directories it makes.
	Namespaces []string
	// Unused is how long a function's copies stay after the last instance has ended.
	Unused time.Duration
	// Size is the maximum size in bytes of all copies together.
	Size int64
}

// Removed says that a function's copies were removed.
type Removed struct {
	// Name is the namespace, a slash, and the name of the directory: the function's name, its UID and
	// a hash of the model.
	Name string
	// Bytes is their size on the disk. The space is free once the last instance that has loaded them ends.
	Bytes int64
	Why   string
}

// state is what is known of a function's directory.
type state struct {
	name  string
	bytes int64
	used  time.Time
	// held: instances have it.
	held bool
}

// Look makes what is missing, notes which copies are in use at the time now, and removes what has to go.
// It goes on after an error.
func (t *Tidier) Look(now time.Time) (removed []Removed, err error) {
	if err := os.Chmod(t.Root, sealed); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(t.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range t.Namespaces {
		if failed := root.Mkdir(name, 0o755); failed != nil && !errors.Is(failed, fs.ErrExist) {
			err = errors.Join(err, failed)
		}
	}
	all, failed := t.states(root, now)
	err = errors.Join(err, failed)
	for _, u := range t.unneeded(all, now) {
		switch gone, failed := remove(root, u.state); {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("remove %s: %w", u.name, failed))
		case gone:
			removed = append(removed, Removed{Name: u.name, Bytes: u.bytes, Why: u.why})
		}
	}
	return removed, err
}

// states looks at all functions' directories.
func (t *Tidier) states(root *os.Root, now time.Time) (all []state, err error) {
	namespaces, err := directories(root, ".")
	for _, namespace := range namespaces {
		functions, failed := directories(root, namespace)
		err = errors.Join(err, openTo(root, namespace), failed)
		for _, function := range functions {
			s, failed := inspect(root, path.Join(namespace, function), now)
			if err = errors.Join(err, failed); failed == nil {
				all = append(all, s)
			}
		}
	}
	return all, err
}

// directories lists the directories in a directory, and no links.
func directories(root *os.Root, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// openTo lets every user write to a directory.
func openTo(root *os.Root, dir string) error {
	info, err := root.Lstat(dir)
	if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSticky) == open {
		return err
	}
	return root.Chmod(dir, open)
}

// inspect looks at one function's directory, and notes if it is in use now.
func inspect(root *os.Root, name string, now time.Time) (state, error) {
	s := state{name: name}
	info, err := root.Lstat(name)
	if err != nil {
		return s, err
	}
	s.used = info.ModTime()
	// The kubelet has made it before its namespace's directory was open.
	if err := openTo(root, name); err != nil {
		return s, err
	}
	f, err := root.Open(name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if s.held = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil; s.held {
		s.used = now
		if err := root.Chtimes(name, now, now); err != nil {
			return s, err
		}
	}
	err = fs.WalkDir(root.FS(), name, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Its function has just moved it.
		}
		if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				s.bytes += 512 * stat.Blocks
			}
		}
		return nil
	})
	return s, err
}

// unneeded is a directory that has to go.
type unneeded struct {
	state
	why string
}

// unneeded decides which directories go: those not used for t.Unused, and, for as long as the rest is
// larger than t.Size, the least recently used ones without an instance, then the largest ones.
func (t *Tidier) unneeded(all []state, now time.Time) (out []unneeded) {
	var rest []state
	var bytes int64
	for _, s := range all {
		if !s.held && now.Sub(s.used) >= t.Unused {
			out = append(out, unneeded{s, fmt.Sprintf("no instance has used it for %v", t.Unused)})
			continue
		}
		rest = append(rest, s)
		bytes += s.bytes
	}
	slices.SortFunc(rest, func(a, b state) int {
		switch {
		case a.held != b.held && b.held:
			return -1
		case a.held != b.held:
			return 1
		case a.held:
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
		}
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name))
	})
	for _, s := range rest {
		if bytes <= t.Size {
			break
		}
		bytes -= s.bytes
		out = append(out, unneeded{s, fmt.Sprintf("all copies together exceed %d bytes", t.Size)})
	}
	return out
}

// remove removes a directory. It reports false if an instance has begun to use an unused one.
func remove(root *os.Root, s state) (gone bool, err error) {
	if !s.held {
		f, err := root.Open(s.name)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return false, nil
		}
	}
	return true, root.RemoveAll(s.name)
}
