package copies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deepen makes directories in one another, more of them than a path can name.
func deepen(t *testing.T, dir string, depth int) {
	t.Helper()
	in, err := os.Open(dir)
	for i := 0; err == nil && i < depth; i++ {
		below := in
		if err = unix.Mkdirat(int(in.Fd()), "d", 0o755); err == nil {
			below, err = openDir(in, "d")
		}
		in.Close()
		in = below
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
}

func files(t *testing.T, dir string, number int) {
	t.Helper()
	for i := range number {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// isEmpty checks that nothing but the named is left in a namespace's directory.
func isEmpty(t *testing.T, tidier *Tidier, but ...string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(tidier.Root, "fn"))
	if err != nil || len(left) != len(but) {
		t.Errorf("there are %v, %v; want %v", left, err, but)
	}
}

// A function's directory goes if it cannot be added up, and no other function's with it.
func TestBeyondTheBounds(t *testing.T) {
	for _, c := range []struct {
		name, why string
		fill      func(t *testing.T, dir string)
	}{
		{"bytes as a name", "no instance", func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "\xff", "\xfe\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"many", "more than 5000 files", func(t *testing.T, dir string) { files(t, dir, maxNames) }},
		{"deep", "more than 40 deep", func(t *testing.T, dir string) { deepen(t, dir, 3000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tidier, now := node(t, map[string]int{"fn/hostile": 1 << 20, "fn/other": 1 << 20}), time.Now()
			tidier.Size = 2<<20 + 1<<18
			c.fill(t, filepath.Join(tidier.Root, "fn/hostile"))
			hold(t, filepath.Join(tidier.Root, "fn/other"))
			if !strings.HasPrefix(c.why, "no instance") {
				hold(t, filepath.Join(tidier.Root, "fn/hostile")) // The limit is for all.
			} else {
				tidier.looks(t, now)
				now = now.Add(2 * time.Hour)
			}
			removed, err := tidier.Look(now)
			if err != nil || len(removed) != 1 || removed[0].Name != "fn/hostile" || !strings.Contains(removed[0].Why, c.why) || removed[0].Bytes < 1<<20 {
				t.Errorf("removed %v, %v", removed, err)
			}
			isEmpty(t, tidier, "other")
		})
	}
}

// A copy's usual files are far below the bounds.
func TestWithinTheBounds(t *testing.T) {
	tidier, now := node(t, map[string]int{"fn/a": 1 << 20}), time.Now()
	dir := filepath.Join(tidier.Root, "fn/a")
	deepen(t, dir, maxDepth-1)
	files(t, dir, maxNames-maxDepth)
	tidier.looks(t, now)
	files(t, filepath.Join(dir, "d"), 1)
	tidier.looks(t, now, "fn/a")
}

// A removal that is too large for one round goes on in the next, also by another process. Others go first.
func TestRemovalIsBounded(t *testing.T) {
	tidier := node(t, map[string]int{"fn/large": 1, "fn/small": 1})
	large := filepath.Join(tidier.Root, "fn/large")
	files(t, large, 24)
	deepen(t, large, 60)
	namespace, err := os.Open(filepath.Join(tidier.Root, "fn"))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	first := removal{left: 20, each: 10}
	for _, name := range []string{"large", "small"} {
		if err := first.take(place{namespace, name}); err != nil {
			t.Error(err)
		}
	}
	if err := first.rest(nil); err == nil || !strings.Contains(err.Error(), "not empty yet") || first.left < 5 || first.left > 9 {
		t.Errorf("%d are left: %v", first.left, err)
	}
	for rounds := 0; ; rounds++ {
		_, old, err := states(namespace, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if len(old) == 0 {
			if rounds < 5 {
				t.Errorf("it took %d rounds for some 85 names, 10 each", rounds)
			}
			break
		}
		if rounds > 20 {
			t.Fatalf("after %d rounds there are %v", rounds, old)
		}
		next := removal{left: 10, each: 10}
		_ = next.rest(old)
		if next.failed != nil {
			t.Fatal(next.failed)
		}
		if _, err := namespace.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	isEmpty(t, tidier)
}

// A function that goes on writing while its directory is removed delays nothing, and its directory is gone
// once it ends.
func TestRemovalFromAWriter(t *testing.T) {
	tidier, now := node(t, map[string]int{"fn/hostile": 1, "fn/unused": 1}), time.Now()
	path := filepath.Join(tidier.Root, "fn/hostile")
	files(t, path, maxNames)
	hold(t, path)
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	begun, end := make(chan struct{}), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			fd, err := unix.Openat(int(dir.Fd()), fmt.Sprint("w", i), unix.O_CREAT|unix.O_WRONLY, 0o644)
			if i == 0 {
				close(begun)
			}
			if err == nil {
				unix.Close(fd)
			} else if !errors.Is(err, unix.ENOENT) {
				t.Error(err)
			}
		}
	})
	<-begun
	removed, err := tidier.Look(now.Add(2 * time.Hour))
	if got := names(removed); strings.Join(got, " ") != "fn/hostile fn/unused" {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	close(end)
	writer.Wait()
	tidier.looks(t, now)
	isEmpty(t, tidier)
}

// No time of last use lies after now.
func TestUsedInTheFuture(t *testing.T) {
	tidier, now := node(t, map[string]int{"fn/a": 1}), time.Now()
	later := now.Add(1000 * time.Hour)
	if err := os.Chtimes(filepath.Join(tidier.Root, "fn/a"), later, later); err != nil {
		t.Fatal(err)
	}
	tidier.looks(t, now)
	tidier.looks(t, now.Add(61*time.Minute), "fn/a")
}
