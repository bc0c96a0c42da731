package workdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// fileIn reports whether a directory is whole: it has the file.
func fileIn(dir string) bool { return Exists(filepath.Join(dir, "file")) }

// A directory is made once, and as a whole. One that is damaged is replaced.
func TestStoreMakes(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "new"), Work: ".work-"}
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
		if err := s.Make("a", fileIn, fill); err != nil || made != want || !fileIn(filepath.Join(s.Dir, "a")) {
			t.Errorf("made %d times, want %d: %v", made, want, err)
		}
	}
}

// An error leaves nothing, and of two makers the first one's directory stays.
func TestStoreMakesOne(t *testing.T) {
	s, failed := Store{Dir: t.TempDir(), Work: ".work-"}, errors.New("no space")
	if err := s.Make("a", fileIn, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	write := func(content string) func(string) error {
		return func(work string) error { return os.WriteFile(filepath.Join(work, "file"), []byte(content), 0o644) }
	}
	err := s.Make("a", fileIn, func(work string) error {
		return errors.Join(s.Make("a", fileIn, write("first")), write("second")(work))
	})
	if text, read := os.ReadFile(filepath.Join(s.Dir, "a", "file")); errors.Join(err, read) != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, errors.Join(err, read))
	}
}

// Directories go that nothing has used after a time. Others, and files, stay.
func TestStoreRemovesUnused(t *testing.T) {
	s, now := Store{Dir: t.TempDir(), Work: ".work-"}, time.Now()
	for name, used := range map[string]time.Duration{"a-old": 2 * time.Hour, "a-young": 0, "b-old": 2 * time.Hour} {
		dir := filepath.Join(s.Dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Chtimes(dir, now.Add(-used), now.Add(-used))); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := s.RemoveUnused("a-*", now.Add(-time.Hour))
	if err != nil || !slices.Equal(removed, []string{filepath.Join(s.Dir, "a-old")}) {
		t.Errorf("%v, %v", removed, err)
	}
	left, err := os.ReadDir(s.Dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
