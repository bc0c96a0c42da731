package image

import (
	"cmp"
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

// kept is a bundle that Pull has left on this machine.
type kept struct {
	folder string
	bytes  int64
	used   time.Time
}

// Evict removes bundles from a directory that [Pull] fills, the one that was asked for
// longest ago first, until those that are left have at most so many bytes together.
// A bundle used after that time stays, however large all of these are: somebody may be reading it. It
// returns how many bytes were removed.
func Evict(cacheDir string, most int64, used time.Time) (freed int64, err error) {
	all, err := list(cacheDir)
	if err != nil {
		return 0, fmt.Errorf("look at the bundles kept: %w", err)
	}
	total := int64(0)
	for _, k := range all {
		total += k.bytes
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.folder, b.folder)) })
	for _, k := range all {
		if total <= most || k.used.After(used) {
			break
		}
		if err := evict(cacheDir, k.folder, used); err != nil {
			return freed, fmt.Errorf("remove a bundle: %w", err)
		}
		total, freed = total-k.bytes, freed+k.bytes
	}
	return freed, bundle.Sweep(cacheDir)
}

// evict takes a bundle out of its place, unless it was asked for meanwhile.
func evict(cacheDir, folder string, used time.Time) error {
	dir := filepath.Join(cacheDir, folder)
	defer lock(dir)()
	info, err := os.Stat(dir)
	if err != nil || info.ModTime().After(used) {
		return nil // Gone, or wanted again.
	}
	staging := filepath.Join(cacheDir, bundle.StagingDir)
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return err
	}
	// Its place is empty at once; Sweep then removes it file by file.
	return os.Rename(dir, filepath.Join(staging, "evicted-"+folder))
}

// list finds the bundles by their folders' names, which are digests.
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

// lock keeps a bundle's directory to its caller until what it returns is called.
func lock(dir string) (unlock func()) {
	l, _ := pulls.LoadOrStore(dir, new(sync.Mutex))
	l.(*sync.Mutex).Lock()
	return l.(*sync.Mutex).Unlock
}

// touch notes that a bundle is asked for now. Where it cannot be noted, the bundle goes
// sooner than it should, and comes again.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}
