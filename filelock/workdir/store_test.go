package workdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fileIn reports whether a directory is whole: it has the file.
func fileIn(dir string) bool { return Exists(filepath.Join(dir, "file")) }

// A directory is made once, and as a whole. One that is damaged is replaced.
func TestStoreMakes(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "new")}
	made := 0
	fill := func(work string) error {
		if made++; fileIn(filepath.Join(s.Dir, "a")) {
			t.Error("it is there before it is whole")
		}
		return os.WriteFile(filepath.Join(work, "file"), nil, 0o644)
	}
	for _, want := range []int{1, 1, 2} {
		if want == 2 { // It is damaged.
			if err := os.Remove(filepath.Join(s.Dir, "a", "file")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Make(t.Context(), "a", fileIn, fill); err != nil || made != want || !fileIn(filepath.Join(s.Dir, "a")) {
			t.Errorf("made %d times, want %d: %v", made, want, err)
		}
	}
}

// write returns a fill that writes one file.
func write(content string) func(string) error {
	return func(work string) error { return os.WriteFile(filepath.Join(work, "file"), []byte(content), 0o644) }
}

// isOnly checks that the store has one directory, with this file.
func isOnly(t *testing.T, s Store, content string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "a", "file"))
	left, failed := os.ReadDir(s.Dir)
	if errors.Join(err, failed) != nil || string(text) != content || len(left) != 1 {
		t.Errorf("%q, %v, %v", text, left, errors.Join(err, failed))
	}
}

// An error leaves nothing. Of several makers one makes the directory, and the others wait for it: the next one makes
// it if the first one fails.
func TestStoreMakesOne(t *testing.T) {
	s, failed := Store{Dir: t.TempDir()}, errors.New("no space")
	if err := s.Make(t.Context(), "a", fileIn, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	begun := make(chan struct{})
	var made atomic.Int32
	var all sync.WaitGroup
	all.Go(func() {
		err := s.Make(t.Context(), "a", fileIn, func(work string) error {
			close(begun)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Make(ended, "a", fileIn, write("")); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Error(err)
		}
	})
	<-begun
	for range 4 {
		all.Go(func() {
			err := s.Make(t.Context(), "a", fileIn, func(work string) error { made.Add(1); return write("second")(work) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("it was made %d times", made.Load())
	}
	isOnly(t, s, "second")
}

// Of several that do not wait, the first one's directory stays. One that is not whole is replaced.
func TestStorePublishesTheFirst(t *testing.T) {
	s := Store{Dir: t.TempDir(), Durable: true}
	publish := func(content string, whole func(string) bool) {
		work, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(write(content)(work.Path), s.Publish(work, "a", whole), work.Remove()); err != nil {
			t.Error(err)
		}
		isOnly(t, s, content)
	}
	publish("first", fileIn)
	if work, err := s.Begin(); err != nil || s.Publish(work, "a", fileIn) != nil || work.Remove() != nil {
		t.Error(err)
	}
	isOnly(t, s, "first")
	publish("second", func(string) bool { return false })
}

// What a killed process has left, of any version, goes when the next directory is made, and so does what it left of
// that one. Others' directories stay.
func TestStoreSweeps(t *testing.T) {
	s, old := Store{Dir: t.TempDir()}, time.Now().Add(-2*grace)
	for _, name := range []string{".unfinished-1", ".prepare-1", ".link-1", ".cuda-1", ".0123456789ab-1", ".git", "b"} {
		dir := filepath.Join(s.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "c"), 0o755), os.Chtimes(dir, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, fmt.Sprintf("%s%d-a", unfinished, os.Getuid()), "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Make(t.Context(), "a", fileIn, write("")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if err != nil || !slices.Equal(left, []string{".git", "a", "b"}) || Exists(filepath.Join(s.Dir, "a", "half")) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Directories go that nothing has used after a time. Others, and files, stay.
func TestStoreRemovesUnused(t *testing.T) {
	s, now := Store{Dir: t.TempDir()}, time.Now()
	for name, used := range map[string]time.Duration{"a-old": 2 * time.Hour, "a-young": 0, "b-old": 2 * time.Hour} {
		dir := filepath.Join(s.Dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Chtimes(dir, now.Add(-used), now.Add(-used))); err != nil {
			t.Fatal(err)
		}
	}
	removed, _, err := s.Collect("a-*", now.Add(-time.Hour), -1)
	if err != nil || !slices.Equal(removed, []string{filepath.Join(s.Dir, "a-old")}) {
		t.Errorf("%v, %v", removed, err)
	}
	left, err := os.ReadDir(s.Dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
