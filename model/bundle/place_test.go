package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// put puts a directory with a file "text" in its place.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	if err := tryPut(root, path, text, nil); err != nil {
		t.Fatal(err)
	}
}

func tryPut(root, path, text string, replaceable func(string) error) (err error) {
	s, err := NewStaged(root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Discard()) }()
	if err := os.WriteFile(filepath.Join(s.Dir, "text"), []byte(text), 0o644); err != nil {
		return err
	}
	return s.Live(path, replaceable)
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path, "text"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// staging is what is below the staging directory.
func staging(t *testing.T, root string) []fs.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, StagingDir))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestLive(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a/b/c", "1")
	put(t, root, "a/b/c", "2")
	if got := read(t, root, "a/b/c"); got != "2" {
		t.Error(got)
	}
	// Live also replaces an empty directory, a link and a file.
	if err := errors.Join(os.Mkdir(filepath.Join(root, "empty"), 0o755), os.Symlink("a/b/c", filepath.Join(root, "link")), os.WriteFile(filepath.Join(root, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"empty", "link", "file"} {
		put(t, root, name, name)
		if got := read(t, root, name); got != name {
			t.Error(got)
		}
	}
	if got := read(t, root, "a/b/c"); got != "2" {
		t.Errorf("what a link led to is %q", got)
	}
	if left := staging(t, root); len(left) > 0 {
		t.Error(left)
	}
}

func TestManyFiles(t *testing.T) {
	const many = 128 // They are not synced one by one.
	root := t.TempDir()
	s, err := NewStaged(root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if err := os.WriteFile(filepath.Join(s.Dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Live("a", nil), s.Discard()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(root, "a")); err != nil || len(entries) != many {
		t.Errorf("%d files, %v", len(entries), err)
	}
}

func TestRefusesPlaces(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	put(t, root, "kept", "old")
	mine := errors.New("it is mine")
	for _, test := range []struct {
		path        string
		replaceable func(string) error
		words       string
	}{
		{"../x", nil, "leads out"},
		{"/x", nil, "leads out"},
		{"out/x", nil, "escapes"},
		{"kept", func(dir string) error {
			if dir != filepath.Join(root, "kept") {
				t.Errorf("asked for %s", dir)
			}
			return mine
		}, "it is mine"},
		{"kept/text/x", nil, "file exists"},
	} {
		if err := tryPut(root, test.path, "new", test.replaceable); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %v, want %q", test.path, err, test.words)
		}
	}
	if got := read(t, root, "kept"); got != "old" {
		t.Error(got)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if left := staging(t, root); len(left) > 0 {
		t.Error(left)
	}
}

func TestHoldAndSweep(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a", "1")
	dir := filepath.Join(root, "a")
	held, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewStaged(root)
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "a", "2")
	for _, c := range []struct {
		what  string
		close func() error
		left  int
	}{
		{"all are held", func() error { return nil }, 2},
		{"one of two that hold it is gone", held.Close, 2},
		{"both are", again.Close, 1},
		{"the new one is given up", made.Discard, 0},
	} {
		if err := errors.Join(c.close(), Sweep(root)); err != nil {
			t.Error(err)
		}
		if left := staging(t, root); len(left) != c.left {
			t.Errorf("%s: %v", c.what, left)
		}
	}
	if got := read(t, root, "a"); got != "2" {
		t.Error(got)
	}
	if _, err := Hold(filepath.Join(root, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := Sweep(filepath.Join(root, "absent")); err != nil {
		t.Error(err)
	}
}

// Sweep removes whatever a crash may leave, including directories without rights and
// links.
func TestSweepRemovesAnything(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(root, StagingDir, name) }
	precious := filepath.Join(outside, "precious")
	if err := errors.Join(
		os.MkdirAll(at("new-1/a/b"), 0o755), os.WriteFile(at("new-1/a/b/c"), nil, 0o400), os.WriteFile(at("body-1"), nil, 0o600),
		os.WriteFile(precious, nil, 0o644), os.Symlink(outside, at("link")), os.Symlink(outside, at("new-1/a/link")),
		os.Chmod(at("new-1/a/b"), 0o500), os.Chmod(at("new-1/a"), 0o500)); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(root); err != nil {
		t.Fatal(err)
	}
	if left := staging(t, root); len(left) > 0 {
		t.Error(left)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// After an exchange the path in the staging directory is that of the replaced directory, which is held.
func TestSweepAfterExchange(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a", "old")
	held, err := Hold(filepath.Join(root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	staged, err := NewStaged(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(staged.Dir, "text"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(staged.Live("a", nil), staged.Discard()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/text", held.Fd())); err != nil || string(text) != "old" {
		t.Errorf("the held directory has %q, %v", text, err)
	}
	if got := read(t, root, "a"); got != "new" {
		t.Error(got)
	}
	if err := errors.Join(held.Close(), Sweep(root)); err != nil {
		t.Fatal(err)
	}
	if left := staging(t, root); len(left) > 0 {
		t.Error(left)
	}
}

// With concurrent writes to one place and sweeps, a reader that holds the place
// always finds it whole.
func TestAtOnce(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a", "0")
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		writers.Go(func() {
			for j := range 15 {
				if err := tryPut(root, "a", fmt.Sprint(i, j), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	until := func(f func() error) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	until(func() error { return Sweep(root) })
	until(func() error {
		held, err := Hold(filepath.Join(root, "a"))
		if err != nil {
			return err
		}
		defer held.Close()
		inside, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", held.Fd()))
		if err != nil {
			return err
		}
		defer inside.Close()
		_, err = inside.ReadFile("text")
		return err
	})
	writers.Wait()
	close(stop)
	others.Wait()
	if err := Sweep(root); err != nil {
		t.Error(err)
	}
	if left := staging(t, root); len(left) > 0 {
		t.Error(left)
	}
}
