package copies

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
)

const (
	// open is the mode of a namespace's directory. The kubelet gives it to the directories that it makes
	// for pods, whose users may then write there. sealed is that of the node's: no other user of the
	// node gets to what is below.
	open   = 0o777 | fs.ModeSticky
	sealed = 0o700
	// maxListed bounds how many functions' directories of a namespace are looked at. One who may mount the
	// whole claim can make any number.
	maxListed = 10_000
)

// Tidier keeps a node's directory of copies usable and small. It owns the directory, and trusts nothing
// below a function's directory: it follows no link and reads no file, and removes what it cannot add up.
type Tidier struct {
	// Root is the node's directory, with one directory for each namespace.
	Root string
	// Namespaces are those whose directories it makes.
	Namespaces []string
	// Unused is how long a function's copies stay after the last instance has ended.
	Unused time.Duration
	// Size is the maximum size in bytes of all copies together.
	Size int64
	// KeepFree is the percentage of the disk that stays free when a model is taken.
	KeepFree int

	// looking is held while directories are looked at and removed.
	looking sync.Mutex
	// coming has the directories below Root into which contents are being received, and the bytes that each will have,
	// 0 until that is known. None of them is removed.
	coming map[string]int64
}

// Removed says that a function's copies were removed.
type Removed struct {
	// Name is the namespace, a slash, and the name of the directory: the function's name, its UID and
	// a hash of the model.
	Name string
	// Bytes is their size on the disk, as far as it was counted. The space is free once the last instance
	// that has loaded them ends.
	Bytes int64
	Why   string
}

// state is what is known of a function's directory.
type state struct {
	place
	bytes int64
	used  time.Time
	// held: instances have it.
	held bool
	// coming: a content is being received. bytes has those that it will have, and rest are those that are not here yet.
	coming bool
	rest   int64
	// beyond says why it cannot be added up. Its bytes are those that were counted before.
	beyond error
}

// name is the namespace's and the directory's.
func (s state) name() string { return path.Join(s.in.Name(), s.place.name) }

// Look makes what is missing, notes which copies are in use at the time now, and removes what has to go.
// It goes on after an error.
func (t *Tidier) Look(now time.Time) (removed []Removed, err error) {
	t.looking.Lock()
	defer t.looking.Unlock()
	if err := os.Chmod(t.Root, sealed); err != nil {
		return nil, err
	}
	for _, name := range t.Namespaces {
		if failed := os.Mkdir(filepath.Join(t.Root, name), 0o755); failed != nil && !errors.Is(failed, fs.ErrExist) {
			err = errors.Join(err, failed)
		}
	}
	s, failed := t.survey(now)
	defer s.close()
	removed, wrong := remove(t.unneeded(s.all, now), s.old)
	return removed, errors.Join(err, failed, wrong)
}

// survey is what a node's directory has.
type survey struct {
	all []state
	// old are leftovers.
	old  []place
	open []*os.File
}

func (s survey) close() {
	for _, dir := range s.open {
		_ = dir.Close() // They were read only.
	}
}

// survey looks at the directories of all namespaces.
func (t *Tidier) survey(now time.Time) (s survey, err error) {
	root, err := os.Open(t.Root)
	if err != nil {
		return s, err
	}
	s.open = append(s.open, root)
	spaces, _, err := directories(root)
	for _, name := range spaces {
		dir, failed := openDir(root, name)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		s.open = append(s.open, dir)
		states, leftovers, failed := states(dir, now)
		for i, one := range states {
			if size, is := t.coming[one.name()]; is {
				states[i].coming, states[i].rest = true, max(0, size-one.bytes)
				states[i].bytes = max(one.bytes, size)
			}
		}
		s.all, s.old, err = append(s.all, states...), append(s.old, leftovers...), errors.Join(err, failed)
	}
	return s, err
}

// remove removes directories, and goes on with leftovers.
func remove(all []unneeded, old []place) (removed []Removed, err error) {
	work := removal{left: perLook, each: perDirectory}
	for _, u := range all {
		switch gone, failed := u.remove(&work); {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("remove %q: %w", u.name(), failed))
		case gone:
			removed = append(removed, Removed{Name: u.name(), Bytes: u.bytes, Why: u.why})
		}
	}
	return removed, errors.Join(err, work.rest(old))
}

// states looks at the functions' directories of a namespace, and lists its leftovers.
func states(namespace *os.File, now time.Time) (all []state, old []place, err error) {
	functions, leftovers, err := directories(namespace)
	err = errors.Join(err, openTo(namespace))
	for _, name := range functions {
		s, failed := inspect(place{namespace, name}, now)
		if err = errors.Join(err, unlessGone(failed)); failed == nil {
			all = append(all, s)
		}
	}
	for _, name := range leftovers {
		old = append(old, place{namespace, name})
	}
	return all, old, err
}

// directories lists the directories in a directory, and no links. Leftovers are apart. It lists at most
// maxListed of each.
func directories(in *os.File) (names, leftovers []string, err error) {
	more := false
	err = eachName(in, func(name string) error {
		is, err := statIn(in, name)
		switch {
		case err != nil:
			return unlessGone(err)
		case !isDir(is):
		case strings.HasPrefix(name, leftover):
			if len(leftovers) < maxListed {
				leftovers = append(leftovers, name)
			}
		case len(names) == maxListed:
			more = true
		default:
			names = append(names, name)
		}
		return nil
	})
	if more {
		err = errors.Join(err, fmt.Errorf("%s has more than %d directories: remove those that are no function's", in.Name(), maxListed))
	}
	return names, leftovers, err
}

// openTo lets every user write to a directory.
func openTo(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSticky) == open {
		return err
	}
	return dir.Chmod(open)
}

// inspect looks at one function's directory, and notes if it is in use now.
func inspect(p place, now time.Time) (state, error) {
	s := state{place: p}
	dir, err := openDir(p.in, p.name)
	if err != nil {
		return s, err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return s, err
	}
	s.used = info.ModTime()
	if !strings.HasPrefix(p.name, modelPrefix) {
		// The kubelet has made it before its namespace's directory was open.
		err = openTo(dir)
	}
	if err != nil {
		return s, err
	}
	// Root in a pod may set any time.
	if s.held = filelock.Try(dir, filelock.Exclusive) != nil; s.held || s.used.After(now) {
		s.used = now
		at := unix.NsecToTimeval(now.UnixNano())
		if err := unix.Futimes(int(dir.Fd()), []unix.Timeval{at, at}); err != nil {
			return s, err
		}
	}
	var sum weighing
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		sum.bytes = 512 * stat.Blocks
	}
	s.beyond = sum.add(dir, 1)
	s.bytes = sum.bytes
	return s, nil
}

// unneeded is a directory that has to go.
type unneeded struct {
	state
	why string
}

// unneeded decides which directories go: those not used for t.Unused, and, for as long as the rest is
// larger than t.Size, the least recently used ones without an instance, then the largest ones. Those that
// cannot be added up go too, last and in any case. No other goes for them, however much they hold. Those into which
// contents are being received stay.
func (t *Tidier) unneeded(all []state, now time.Time) (out []unneeded) {
	var rest []state
	var beyond []unneeded
	var bytes int64
	for _, s := range all {
		switch {
		case s.coming:
			bytes += s.bytes
		case s.beyond != nil:
			beyond = append(beyond, unneeded{s, s.beyond.Error()})
		case !s.held && now.Sub(s.used) >= t.Unused:
			out = append(out, unneeded{s, fmt.Sprintf("no instance has used it for %v", t.Unused)})
		default:
			rest = append(rest, s)
			bytes += s.bytes
		}
	}
	for _, s := range inOrder(rest) {
		if bytes <= t.Size {
			break
		}
		bytes -= s.bytes
		out = append(out, unneeded{s, fmt.Sprintf("all copies together exceed %d bytes", t.Size)})
	}
	return append(out, beyond...)
}

// inOrder sorts directories in the order in which they go: those without an instance, the least recently used ones
// first, and then the largest ones.
func inOrder(all []state) []state {
	return slices.SortedFunc(slices.Values(all), func(a, b state) int {
		switch {
		case a.held != b.held && b.held:
			return -1
		case a.held != b.held:
			return 1
		case a.held:
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.place.name, b.place.name))
		}
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.place.name, b.place.name))
	})
}

// remove removes a directory. It reports false if an instance has begun to use an unused one.
func (s state) remove(work *removal) (gone bool, err error) {
	if !s.held {
		dir, err := openDir(s.in, s.place.name)
		if err != nil {
			return false, unlessGone(err)
		}
		defer dir.Close()
		if filelock.Try(dir, filelock.Exclusive) != nil {
			return false, nil
		}
	}
	return true, work.take(s.place)
}
