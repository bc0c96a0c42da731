package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// On a disk without room for a copy, rotation loses no line, however often it is tried.
// A limit on file sizes simulates the full disk.
func TestRotationOnAFullDisk(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2}
	var all []string
	line := func(i int) {
		t.Helper()
		text := fmt.Sprintf("line %d", i)
		print(t, s, "a", stamped(i, text))
		all = append(all, fmt.Sprintf("a:%d %s", i, text))
	}
	line(0)
	rotate(t, s, "a")
	line(1)
	rotate(t, s, "a")
	for i := range 300 {
		line(2 + i)
	}
	undo := fullDisk(t)
	for range 3 {
		if err := s.Rotate("f.ns", "a"); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("Rotate = %v", err)
		}
	}
	undo()
	want(t, texts(t, s, Query{}), all...)
	want(t, names(t, s, "f.ns"), "a.log", "a.log.1", "a.log.2")
	rotate(t, s, "a")
	want(t, texts(t, s, Query{}), all[1:]...)
}

// disk returns a copy that fails once the files of a directory take more than its size, as on
// a disk of that size. It may already hold more.
func disk(t *testing.T, dir string, size int64) func(io.Writer, io.Reader) (int64, error) {
	return func(to io.Writer, from io.Reader) (int64, error) {
		var taken int64
		err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				taken += info.Size()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyN(to, from, max(0, size-taken))
		if err == nil { // Whether that was all.
			_, err = io.CopyN(io.Discard, from, 1)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		return n, &fs.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
	}
}

// A log that fills the disk makes room for itself: older copies go first, the oldest before
// the others.
func TestRotationMakesRoomOnAFullDisk(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 3}
	var all []string
	for i := range 4 {
		text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 100))
		print(t, s, "a", stamped(i, text))
		all = append(all, fmt.Sprintf("a:%d %s", i, text))
		if i < 3 {
			rotate(t, s, "a")
		}
	}
	// The disk has room for the four files and nothing else.
	info, err := os.Stat(s.Path("f.ns", "a"))
	if err != nil {
		t.Fatal(err)
	}
	s.copy = disk(t, s.Dir, 4*info.Size())
	rotate(t, s, "a")
	want(t, texts(t, s, Query{}), all[1:]...)
	want(t, names(t, s, "f.ns"), "a.log", "a.log.1", "a.log.2", "a.log.3")
}

// A log that no deleted copy makes room for is emptied. Later lines of the instance are
// kept, and a reader that had read the rest sees it once.
func TestRotationEmptiesALogOnAFullDisk(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2, copy: func(io.Writer, io.Reader) (int64, error) { return 0, full }}
		print(t, s, "a", stamped(0, "before"))
		c := &cursor{store: s, path: s.Path("f.ns", "a")}
		if err := c.advance(false); err != nil || c.head.Text != "before" {
			t.Fatalf("read %q, %v", c.head.Text, err)
		}
		if err := s.Rotate("f.ns", "a"); !errors.Is(err, ErrDropped) || !errors.Is(err, full) {
			t.Errorf("Rotate = %v", err)
		}
		want(t, names(t, s, "f.ns"), "a.log")
		print(t, s, "a", stamped(1, "after"))
		want(t, texts(t, s, Query{}), "a:1 after")
		if err := c.advance(false); err != nil || c.head.Text != "after" {
			t.Errorf("the reader goes on with %q, %v", c.head.Text, err)
		}
	}
}

// fullDisk limits the files of this process to 4 KiB until undo is called.
func fullDisk(t *testing.T) (undo func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limited := before
	limited.Cur = 4 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
		signal.Reset(syscall.SIGXFSZ)
	}
}
