package image

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// kept is a bundle that Pull left on this machine. folder is its directory's name,
// used the time of its last Pull.
type kept struct {
	folder string
	bytes  int64
	used   time.Time
}

// Evict removes bundles from a directory that [Pull] fills, least recently used
// first, until the rest have at most maxBytes together. It keeps every bundle that
// was used after the given time, because a process may be reading it. It returns the
// number of bytes removed.
func Evict(cacheDir string, maxBytes int64, used time.Time) (freed int64, err error) {
	all, err := list(cacheDir)
	if err != nil {
		return 0, fmt.Errorf("list the cached bundles: %w", err)
	}
	total := int64(0)
	for _, k := range all {
		total += k.bytes
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.folder, b.folder)) })
	for _, k := range all {
		if total <= maxBytes || k.used.After(used) {
			break
		}
		if err := evict(cacheDir, k.folder, used); err != nil {
			return freed, fmt.Errorf("remove a bundle: %w", err)
		}
		total, freed = total-k.bytes, freed+k.bytes
	}
	return freed, bundle.Sweep(cacheDir)
}

// evict takes a bundle out of its place, unless it was used meanwhile.
func evict(cacheDir, folder string, used time.Time) error {
	dir := filepath.Join(cacheDir, folder)
	defer lock(dir)()
	info, err := os.Stat(dir)
	if err != nil || info.ModTime().After(used) {
		return nil // It is gone, or in use again.
	}
	staging := filepath.Join(cacheDir, bundle.StagingDir)
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return err
	}
	// Its place is empty at once; Sweep then removes it file by file, or leaves it if it is held.
	// A bundle may be pulled and evicted again before that, so the name differs each time.
	return os.Rename(dir, filepath.Join(staging, "evicted-"+rand.Text()+"-"+folder))
}

// list finds the bundles by the names of their folders, which are digests.
func list(cacheDir string) (all []kept, err error) {
	entries, err := os.ReadDir(cacheDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), "sha256-") {
			continue
		}
		k := kept{folder: e.Name(), used: info.ModTime()}
		err = filepath.WalkDir(filepath.Join(cacheDir, e.Name()), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				k.bytes += info.Size()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// lock locks a bundle's directory until unlock is called.
func lock(dir string) (unlock func()) {
	l, _ := pulls.LoadOrStore(dir, new(sync.Mutex))
	l.(*sync.Mutex).Lock()
	return l.(*sync.Mutex).Unlock
}

// touch records that a bundle is used now. If that fails, the bundle is evicted too
// early and pulled again.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}
