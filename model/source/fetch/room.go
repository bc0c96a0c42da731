package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

const (
	// reserve is how much of the disk a download leaves free, in bytes: others write there, too.
	reserve = 64 << 20
	// fresh is how long an entry stays after its last use in any case: somebody may just have asked for it.
	fresh = time.Minute
	// leftFor is how long unfinished downloads stay after their last byte.
	leftFor = 24 * time.Hour
)

// makeRoom evicts models that nobody uses so that the cache can take size bytes more, of which a part may be here
// already. It refuses what is larger than the cache or the disk. It cannot know that for a size of -1.
func (c *Cache) makeRoom(size int64, parts string) error {
	size = max(size, 0)
	if size > c.options.MaxBytes {
		return c.options.tooLarge(size)
	}
	if err := os.MkdirAll(c.store.Dir, 0o755); err != nil {
		return roomError(err)
	}
	missing := max(size-sizeBelow(parts), 0)
	free, err := freeBytes(c.options.Dir)
	if err != nil {
		return err
	}
	short := missing + reserve - free
	now := sizeBelow(c.store.Dir)
	bound := min(c.options.MaxBytes-size, now-max(short, 0))
	if now > bound {
		c.keepUsed()
		_, freed, err := c.store.Collect("sha256-*", time.Now().Add(-fresh), max(bound, 0))
		if err != nil {
			return err
		}
		now, short = now-freed, short-freed
	}
	switch {
	case short > 0:
		if free, err = freeBytes(c.options.Dir); err == nil && missing+reserve <= free {
			break
		}
		return fmt.Errorf("it has %s, and the disk of %s has %s free, of which %s stay free; make room there", bytesText(size), c.options.Dir, bytesText(max(free, 0)), bytesText(reserve))
	case now+size > c.options.MaxBytes:
		return fmt.Errorf("it has %s, and the models that functions use take %s of the %s that the cache may have; remove functions, or give the provider a larger --models-size", bytesText(size), bytesText(now), bytesText(c.options.MaxBytes))
	}
	return nil
}

// Tidy evicts the least recently used models until the cache is within its bound, and removes what downloads have left
// that nobody has continued for a day. It returns the number of bytes removed.
func (c *Cache) Tidy(now time.Time) (freed int64, err error) {
	c.keepUsed()
	_, freed, err = c.store.Collect("sha256-*", now.Add(-fresh), c.options.MaxBytes)
	left, _ := filepath.Glob(filepath.Join(c.options.Dir, "parts", "*"))
	for _, path := range left {
		info, gone := os.Stat(path)
		if gone != nil || now.Sub(info.ModTime()) < leftFor {
			continue
		}
		if filepath.Ext(path) == "" {
			err = errors.Join(err, os.RemoveAll(path))
			continue
		}
		_, failed := workdir.RemoveUnheld(path) // A lock.
		err = errors.Join(err, failed)
	}
	return freed, err
}

// keepUsed notes that the entries in use are used now.
func (c *Cache) keepUsed() {
	if c.options.InUse == nil {
		return
	}
	for _, name := range c.options.InUse() {
		workdir.Use(filepath.Join(c.store.Dir, name), time.Now())
	}
}

// tooLarge is the error for a model that is larger than the cache.
func (c Options) tooLarge(size int64) error {
	return origin.Fatal{Err: fmt.Errorf("it has %s or more, and the cache may have %s; give the provider a larger --models-size", bytesText(size), bytesText(c.MaxBytes))}
}

// freeBytes is how much of a disk this user may still fill.
func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("the room on the disk of %s: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// sizeBelow is the size of all files below a directory in bytes, as far as they are there.
func sizeBelow(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, gone := e.Info(); gone == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// roomError says what to do if an error is that of a full disk.
func roomError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return origin.Fatal{Err: fmt.Errorf("the disk of the cache of models is full: %w; make room there, and deploy again", err)}
	}
	return err
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}
