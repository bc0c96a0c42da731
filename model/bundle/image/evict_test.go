package image

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// fill makes bundles of the given sizes in bytes. The first was used longest ago, each
// next one a minute later.
func fill(t *testing.T, dir string, began time.Time, sizes ...int) (folders []string) {
	t.Helper()
	for i, size := range sizes {
		folder := fmt.Sprintf("sha256-%064d", i)
		below := filepath.Join(dir, folder, "deeper")
		if err := os.MkdirAll(below, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, n := range map[string]int{filepath.Join(below, "model.onnx"): size - size/4, filepath.Join(dir, folder, "bundle.yaml"): size / 4} {
			if err := os.WriteFile(file, make([]byte, n), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		at := began.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(filepath.Join(dir, folder), at, at); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	return folders
}

func TestEvict(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		most  int64
		used  time.Time
		freed int64
		left  []int
	}{
		"all fit":                 {600, time.Now(), 0, []int{0, 1, 2}},
		"the oldest goes":         {599, time.Now(), 100, []int{1, 2}},
		"as many as it takes":     {300, time.Now(), 300, []int{2}},
		"none is left":            {0, time.Now(), 600, nil},
		"what is in use stays":    {0, began.Add(30 * time.Second), 100, []int{1, 2}},
		"all of it may be in use": {0, began.Add(-time.Second), 0, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folders := fill(t, dir, began, 100, 200, 300)
			if err := os.Mkdir(filepath.Join(dir, "something-else"), 0o755); err != nil {
				t.Fatal(err)
			}
			freed, err := Evict(dir, c.most, c.used)
			if err != nil || freed != c.freed {
				t.Errorf("%d bytes were removed, %v; want %d", freed, err, c.freed)
			}
			var want []string
			for _, i := range c.left {
				want = append(want, folders[i])
			}
			left, err := filepath.Glob(filepath.Join(dir, "s*"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range left {
				left[i] = filepath.Base(left[i])
			}
			if want = append(want, "something-else"); !slices.Equal(left, want) {
				t.Errorf("left are %v, want %v", left, want)
			}
			if staged, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(staged) > 0 {
				t.Errorf("%v are still on the disk, %v", staged, err)
			}
		})
	}
	if freed, err := Evict(filepath.Join(t.TempDir(), "nothing"), 0, time.Now()); freed != 0 || err != nil {
		t.Errorf("of no directory: %d, %v", freed, err)
	}
}

// A bundle that a process holds is evicted, pulled and evicted again. The files of the held one stay.
func TestEvictsAgainWhileHeld(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().Add(-time.Hour)
	var held *os.File
	for range 2 {
		folder := filepath.Join(dir, fill(t, dir, began, 100)[0])
		if held == nil {
			var err error
			if held, err = bundle.Hold(folder); err != nil {
				t.Fatal(err)
			}
			defer held.Close()
		}
		if freed, err := Evict(dir, 0, time.Now()); err != nil || freed != 100 {
			t.Errorf("%d bytes were removed, %v; want 100", freed, err)
		}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/bundle.yaml", held.Fd())); err != nil {
		t.Errorf("the held one: %v", err)
	}
}

// Pull marks a bundle as used even if it is cached. An evicted bundle is pulled again.
func TestEvictedBundlesComeBack(t *testing.T) {
	host, counts := serve(t)
	cache := t.TempDir()
	pull := func(name string) *Bundle {
		t.Helper()
		b, err := Pull(t.Context(), host+"/"+name, nil, cache)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var dirs []string
	for _, name := range []string{"a", "b"} {
		push(t, host+"/"+name, foreign(t, "/bundle", []tar.Header{
			regular("bundle/bundle.yaml", "name: "+name+"\nengine: onnx\nmodel: model.onnx\n"), regular("bundle/model.onnx", "0123456789")}))
		dirs = append(dirs, pull(name).Dir)
	}
	ago := time.Now().Add(-time.Hour)
	for _, dir := range dirs {
		if err := os.Chtimes(dir, ago, ago); err != nil {
			t.Fatal(err)
		}
	}
	pull("a")
	if freed, err := Evict(cache, 0, time.Now().Add(-time.Minute)); freed == 0 || err != nil {
		t.Errorf("%d bytes were removed, %v", freed, err)
	}
	read := len(counts.blobs)
	pull("a")
	whenKept := len(counts.blobs)
	pull("b")
	// Pull reads the config of both, and the layers of the evicted one.
	if again := len(counts.blobs) - whenKept; again <= whenKept-read {
		t.Errorf("the kept one's blobs were read %d times, the evicted one's %d times", whenKept-read, again)
	}
}
