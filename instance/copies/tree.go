package copies

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxNames and maxDepth bound a function's directory: how many files and directories it has, and how
	// deep they lie. Prepared copies have a few tens of files, two directories deep. The content of a URI has up to
	// 1,000 files, up to 35 directories deep.
	maxNames = 5_000
	maxDepth = 40
	// removedDepth is how deep directories are removed where they lie.
	removedDepth = 8
	// portion is how many names of a directory are read at a time.
	portion = 256
	// perDirectory and perLook bound how many names are removed at a time: of one directory, and in one
	// [Tidier.Look].
	perDirectory = 50_000
	perLook      = 100_000
	// leftover begins the name of a directory that was taken from its function and is not empty yet. No
	// function has such a name.
	leftover = ".removed-"
)

// openDir opens a directory in another one, and no link.
func openDir(in *os.File, name string) (*os.File, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// again repeats a system call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// statIn describes what has a name in a directory, and follows no link.
func statIn(in *os.File, name string) (is unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstatat(int(in.Fd()), name, &is, unix.AT_SYMLINK_NOFOLLOW) })
	return is, err
}

// isDir reports whether it is a directory.
func isDir(is unix.Stat_t) bool { return is.Mode&unix.S_IFMT == unix.S_IFDIR }

// eachName calls use with the names in a directory until it returns an error. The names may be any bytes,
// and any number: no more than a portion is in memory.
func eachName(dir *os.File, use func(name string) error) error {
	for {
		names, err := dir.Readdirnames(portion)
		for _, name := range names {
			if err := use(name); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// weighing adds up a function's directory.
type weighing struct {
	bytes int64
	names int
}

// add adds what is in a directory. The error says why it cannot be added up within the bounds. It
// leaves out files that the function moves away meanwhile.
func (w *weighing) add(dir *os.File, depth int) error {
	return eachName(dir, func(name string) error {
		if w.names++; w.names > maxNames {
			return fmt.Errorf("it has more than %d files", maxNames)
		}
		is, err := statIn(dir, name)
		if err != nil {
			return unlessGone(err)
		}
		w.bytes += 512 * is.Blocks
		if !isDir(is) {
			return nil
		}
		if depth == maxDepth {
			return fmt.Errorf("its directories are more than %d deep", maxDepth)
		}
		below, err := openDir(dir, name)
		if err != nil {
			return unlessGone(err)
		}
		defer below.Close()
		return unlessGone(w.add(below, depth+1))
	})
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// place is a directory's name in a namespace's directory.
type place struct {
	in   *os.File
	name string
}

// removal removes directories, with whatever is in them. Its steps are bounded, and its memory too. The
// rest of a directory stays under a leftover's name until the next removal.
type removal struct {
	// left is how many names it may still remove. each bounds that for one directory, and here for the
	// present one.
	left, each, here int
	// deep are those that lay too deep in another directory.
	deep []place
	// unfinished is the number of directories that are not gone.
	unfinished int
	// failed is the first error.
	failed error
}

// take takes a directory from its function, and removes it.
func (r *removal) take(p place) error {
	to, err := moveAway(p.in, p)
	if err == nil {
		r.clear(to)
	}
	return err
}

// moveAway gives a directory a leftover's name in a namespace's directory.
func moveAway(in *os.File, p place) (place, error) {
	to := place{in, fmt.Sprintf("%s%016x", leftover, rand.Uint64())}
	err := again(func() error { return unix.Renameat(int(p.in.Fd()), p.name, int(in.Fd()), to.name) })
	if err != nil {
		err = &fs.PathError{Op: "rename", Path: p.name, Err: err}
	}
	return to, err
}

// clear removes a directory that has a leftover's name.
func (r *removal) clear(p place) {
	most := min(r.left, r.each)
	r.here = most
	if !r.empty(p, p.in, 1) {
		r.unfinished++
	}
	r.left -= most - r.here
}

// errEnough ends the reading of a directory.
var errEnough = errors.New("enough for now")

// empty removes a directory, and reports whether it is gone. Directories deeper than removedDepth move to
// space, the namespace's directory, so the tree's depth costs neither memory nor open files.
func (r *removal) empty(p place, space *os.File, depth int) (gone bool) {
	err := unlink(p, unix.AT_REMOVEDIR)
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return r.note(err)
	}
	if depth > removedDepth {
		away, err := moveAway(space, p)
		if err == nil {
			r.deep = append(r.deep, away)
		}
		return r.note(err)
	}
	dir, err := openDir(p.in, p.name)
	if err != nil {
		return r.note(err)
	}
	defer dir.Close()
	err = eachName(dir, func(name string) error {
		if r.here == 0 {
			return errEnough
		}
		r.here--
		below := place{dir, name}
		if err := unlink(below, 0); errors.Is(err, unix.EISDIR) {
			r.empty(below, space, depth+1)
		} else {
			r.note(err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return r.note(err)
	}
	if err = unlink(p, unix.AT_REMOVEDIR); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return false // The bound is reached, or its function goes on writing.
	}
	return r.note(err)
}

// note keeps the first error, and reports whether there was none.
func (r *removal) note(err error) bool {
	err = unlessGone(err)
	if r.failed == nil {
		r.failed = err
	}
	return err == nil
}

// unlink removes a name from its directory.
func unlink(p place, flags int) error {
	if err := again(func() error { return unix.Unlinkat(int(p.in.Fd()), p.name, flags) }); err != nil {
		return &fs.PathError{Op: "remove", Path: p.name, Err: err}
	}
	return nil
}

// rest removes leftovers, those of this time too. Their order is by chance, so none waits for ever for
// those that their functions fill again.
func (r *removal) rest(old []place) error {
	rand.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	for _, p := range old {
		r.clear(p)
	}
	for len(r.deep) > 0 && r.left > 0 {
		p := r.deep[0]
		r.deep = r.deep[1:]
		r.clear(p)
	}
	err := r.failed
	if n := r.unfinished + len(r.deep); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d removed directories are not empty yet: the next round goes on", n))
	}
	return err
}
