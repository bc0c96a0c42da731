package logs

import (
	"errors"
	"fmt"
	"os/signal"
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
