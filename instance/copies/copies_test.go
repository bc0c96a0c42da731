package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hold(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Hold(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// has returns a look for a file, and make writes it.
func has(dir string) (found func() bool, make func(context.Context) error) {
	file := filepath.Join(dir, "copy")
	return func() bool { _, err := os.Stat(file); return err == nil }, func(context.Context) error { return os.WriteFile(file, nil, 0o644) }
}

// Of instances that start at the same time, one makes the copy.
func TestOneMakesTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		found, make := has(dir)
		var made atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				err := hold(t, dir).Once(t.Context(), 10*time.Second, found, func(ctx context.Context) error {
					made.Add(1)
					time.Sleep(3 * time.Second)
					return make(ctx)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if made.Load() != 1 {
			t.Errorf("it was made %d times", made.Load())
		}
	})
}

// An instance waits no longer than its patience, and not after it is stopped.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		found, make := has(dir)
		first, ended := hold(t, dir), context.Background()
		var all sync.WaitGroup
		all.Go(func() {
			if err := first.Once(t.Context(), 0, found, func(ctx context.Context) error { time.Sleep(time.Minute); return make(ctx) }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := hold(t, dir).Once(t.Context(), 10*time.Second, found, make); !errors.Is(err, ErrMaking) {
			t.Error(err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it waited %v", took)
		}
		ended, cancel := context.WithCancel(ended)
		cancel()
		if err := hold(t, dir).Once(ended, time.Hour, found, make); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		all.Wait()
	})
}

// An attempt that fails, or whose process is killed, is not repeated for an hour; one that was stopped is.
func TestFailedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		found, make := has(dir)
		d := hold(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		if err := d.Once(ctx, 0, found, func(ctx context.Context) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		bad := errors.New("no memory")
		if err := d.Once(t.Context(), 0, found, func(context.Context) error { return bad }); !errors.Is(err, bad) {
			t.Error(err)
		}
		// The files' times are the machine's, and the bubble's clock is years behind it.
		at := func(when time.Time) {
			if err := os.Chtimes(filepath.Join(dir, making), when, when); err != nil {
				t.Fatal(err)
			}
		}
		at(time.Now().Add(-59 * time.Minute))
		if err := d.Once(t.Context(), 0, found, make); !errors.Is(err, ErrTried) {
			t.Error(err)
		}
		at(time.Now().Add(-time.Hour))
		if err := d.Once(t.Context(), 0, found, func(context.Context) error { return nil }); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("nothing was made: %v", err)
		}
		at(time.Now().Add(-time.Hour))
		if err := d.Once(t.Context(), 0, found, make); err != nil || !found() {
			t.Error(err)
		}
		if err := d.Once(t.Context(), 0, found, func(context.Context) error { return bad }); err != nil {
			t.Errorf("there is a copy: %v", err)
		}
	})
}

// An attempt that has no end has failed, and concerns its own kind of copy only.
func TestAttemptWithoutEnd(t *testing.T) {
	d, none := hold(t, t.TempDir()), func() bool { return false }
	begin := func(kind string) (*Attempt, error) { return d.Begin(t.Context(), kind, 0, none) }
	killed, err := begin("-cuda")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin("-cuda"); !errors.Is(err, ErrMaking) {
		t.Error(err)
	}
	killed.close() // As the kernel does.
	if _, err := begin("-cuda"); !errors.Is(err, ErrTried) {
		t.Error(err)
	}
	for range 2 {
		a, err := begin("")
		if err := errors.Join(err, a.End()); err != nil {
			t.Error(err)
		}
	}
	if a, err := d.Begin(t.Context(), "-cuda", 0, func() bool { return true }); a != nil || err != nil {
		t.Errorf("there is a copy: %v, %v", a, err)
	}
}

func TestHoldRefuses(t *testing.T) {
	if _, err := Hold(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var none *Dir
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// node makes a node's directory with functions' directories of some sizes.
func node(t *testing.T, sizes map[string]int) *Tidier {
	t.Helper()
	tidier := &Tidier{Root: t.TempDir(), Namespaces: []string{"fn"}, Unused: time.Hour, Size: 1 << 40}
	for name, size := range sizes {
		dir := filepath.Join(tidier.Root, name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "weights.bin"), make([]byte, size), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return tidier
}

func names(removed []Removed) (all []string) {
	for _, r := range removed {
		all = append(all, r.Name)
	}
	slices.Sort(all)
	return all
}

// looks looks and compares what was removed.
func (t *Tidier) looks(test *testing.T, now time.Time, want ...string) {
	test.Helper()
	removed, err := t.Look(now)
	if got := names(removed); err != nil || !slices.Equal(got, want) {
		test.Errorf("removed %v, %v; want %v", removed, err, want)
	}
	for _, r := range removed {
		if _, err := os.Stat(filepath.Join(t.Root, r.Name)); !errors.Is(err, fs.ErrNotExist) || r.Bytes == 0 || r.Why == "" {
			test.Errorf("%+v: %v", r, err)
		}
	}
}

// Copies go an hour after their last instance has ended, however long it ran.
func TestUnusedCopiesGo(t *testing.T) {
	tidier, now := node(t, map[string]int{"fn/a": 4096, "fn/b": 4096}), time.Now()
	d := hold(t, filepath.Join(tidier.Root, "fn/a"))
	tidier.looks(t, now.Add(59*time.Minute))
	tidier.looks(t, now.Add(61*time.Minute), "fn/b")
	tidier.looks(t, now.Add(50*time.Hour))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	tidier.looks(t, now.Add(50*time.Hour+59*time.Minute))
	hold(t, filepath.Join(tidier.Root, "fn/a")).Close() // It notes the real time, which is long past.
	tidier.looks(t, now.Add(51*time.Hour), "fn/a")
	tidier.looks(t, now.Add(52*time.Hour))
}

// Copies that are too large together go: those without an instance first, least recently used first.
func TestTooLargeCopiesGo(t *testing.T) {
	tidier, now := node(t, map[string]int{"fn/old": 1 << 20, "fn/new": 1 << 20, "fn/small": 1 << 20, "fn/large": 3 << 20}), time.Now()
	for i, name := range []string{"old", "new"} {
		used := now.Add(time.Duration(i-2) * time.Minute)
		if err := os.Chtimes(filepath.Join(tidier.Root, "fn", name), used, used); err != nil {
			t.Fatal(err)
		}
	}
	hold(t, filepath.Join(tidier.Root, "fn/small"))
	hold(t, filepath.Join(tidier.Root, "fn/large"))
	tidier.Size = 5<<20 + 1<<19
	tidier.looks(t, now, "fn/old")
	tidier.Size = 2 << 20
	tidier.looks(t, now, "fn/large", "fn/new")
	tidier.looks(t, now)
}

// Pods of any user may write to directories that the kubelet makes; other users of the node get to none.
func TestModes(t *testing.T) {
	tidier := node(t, map[string]int{"fn/early": 1, "other/early": 1})
	tidier.looks(t, time.Now())
	for name, want := range map[string]fs.FileMode{"": 0o700, "fn": open, "fn/early": open, "other": open, "other/early": open} {
		info, err := os.Stat(filepath.Join(tidier.Root, name))
		if err != nil || info.Mode()&(fs.ModePerm|fs.ModeSticky) != want {
			t.Errorf("%q has the mode %v, not %v: %v", name, info.Mode(), want, err)
		}
	}
}

// A function cannot have anything removed or changed that is not its own.
func TestLinksAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	tidier := node(t, map[string]int{"fn/hostile": 1, "fn/other": 1})
	for name, to := range map[string]string{"fn/hostile/out": outside, "fn/hostile/file": filepath.Join(outside, "file"), "fn/hostile/other": "../other", "fn/link": outside, "link": outside} {
		if err := os.Symlink(to, filepath.Join(tidier.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	tidier.Size = 4 << 20 // Less than the file outside.
	tidier.looks(t, time.Now())
	hold(t, filepath.Join(tidier.Root, "fn/other"))
	tidier.looks(t, time.Now().Add(2*time.Hour), "fn/hostile")
	info, err := os.Stat(filepath.Join(outside, "file"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("outside: %v, %v", info, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode()&fs.ModeSticky != 0 {
		t.Errorf("outside: %v, %v", info.Mode(), err)
	}
}

// What is left is never larger than the limit, and can be added up. Nothing in use goes while something
// else would do.
func FuzzUnneeded(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 5, 6}, uint16(100))
	f.Add([]byte{100, 2, 14, 50, 5, 6, 50, 5, 15}, uint16(60))
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		now := time.Now()
		tidier := &Tidier{Unused: time.Minute, Size: int64(size)}
		var all []state
		for i := 0; i+2 < len(text); i += 3 {
			s := state{place: place{name: fmt.Sprint(i)}, bytes: int64(text[i]), used: now.Add(-time.Duration(text[i+1]) * time.Second), held: text[i+2]%2 == 0}
			s.coming = text[i+2]%16 == 7
			if text[i+2]%16 > 13 {
				s.beyond = errors.New("it has more")
			}
			all = append(all, s)
		}
		gone := map[string]bool{}
		heldGone := false
		var coming int64
		for _, u := range tidier.unneeded(all, now) {
			gone[u.place.name] = true
			heldGone = heldGone || u.held && u.beyond == nil
			if u.coming {
				t.Errorf("%+v goes", u)
			}
		}
		var left int64
		for _, s := range all {
			if gone[s.place.name] {
				continue
			}
			left += s.bytes
			if s.coming {
				coming += s.bytes
				continue
			}
			if s.beyond != nil {
				t.Errorf("%+v stays", s)
			}
			if !s.held && (heldGone || now.Sub(s.used) >= tidier.Unused) {
				t.Errorf("%+v stays", s)
			}
		}
		if left > max(tidier.Size, coming) {
			t.Errorf("%d bytes are left", left)
		}
	})
}
