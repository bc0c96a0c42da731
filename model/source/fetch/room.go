package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
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
	missing := max(size-workdir.Size(parts), 0)
	free, err := freeBytes(c.options.Dir)
	if err != nil {
		return err
	}
	short := missing + reserve - free
	now, others := workdir.Size(c.store.Dir), workdir.Size(filepath.Dir(parts))-workdir.Size(parts)
	if others > 0 && (now+others+size > c.options.MaxBytes || short > 0) { // What nobody goes on with goes first.
		for _, path := range c.leftParts() {
			if err := removeParts(path); err != nil {
				return err
			}
		}
		left := workdir.Size(filepath.Dir(parts)) - workdir.Size(parts)
		others, short = left, short-(others-left)
	}
	bound := min(c.options.MaxBytes-size-others, now-max(short, 0))
	if now > bound {
		freed, err := c.evict(max(bound, 0), now, time.Now())
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
		return fmt.Errorf("it has %s, and the disk of %s has %s free, of which %s stay free; make room "+
			"there", bytesText(size), c.options.Dir, bytesText(max(free, 0)), bytesText(reserve))
	case now+others+size > c.options.MaxBytes:
		return fmt.Errorf("it has %s, and the models that functions use and other downloads take %s of the %s that the "+
			"cache may have; remove functions, or give the provider a larger "+
			"--models-size", bytesText(size), bytesText(now+others), bytesText(c.options.MaxBytes))
	}
	return nil
}

// Tidy evicts the least recently used models until the cache is within its bound, and removes what downloads have left
// that nobody has continued for a day. It returns the number of bytes removed.
func (c *Cache) Tidy(now time.Time) (freed int64, err error) {
	freed, err = c.evict(c.options.MaxBytes, workdir.Size(c.store.Dir), now)
	for _, path := range c.leftParts() {
		if now.Sub(latestBelow(path)) > leftFor {
			err = errors.Join(err, removeParts(path))
		}
	}
	locks, _ := filepath.Glob(filepath.Join(c.options.Dir, "parts", "*.lock"))
	for _, path := range locks {
		info, gone := os.Stat(path)
		if gone == nil && now.Sub(info.ModTime()) > leftFor && !workdir.Exists(strings.TrimSuffix(path, ".lock")) {
			_, failed := workdir.RemoveUnheld(path)
			err = errors.Join(err, failed)
		}
	}
	return freed, err
}

// leftParts lists the directories of downloads that are not whole.
func (c *Cache) leftParts() (dirs []string) {
	all, _ := filepath.Glob(filepath.Join(c.options.Dir, "parts", "*"))
	return slices.DeleteFunc(all, func(path string) bool { return filepath.Ext(path) != "" })
}

// removeParts removes what a download has left, unless one goes on there.
func removeParts(dir string) error {
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := filelock.Try(lock, filelock.Exclusive); errors.Is(err, filelock.ErrLocked) {
		return nil
	} else if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// latestBelow is the time of the last change of a directory or of a file there; now if it is gone.
func latestBelow(dir string) (at time.Time) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
		return err
	})
	if err != nil {
		return time.Now()
	}
	return at
}

// evict removes entries until they have at most so many of their bytes: first unused ones, least recently used first,
// then those that [Options].InUse can spare. It returns the number of bytes removed.
func (c *Cache) evict(bound, bytes int64, now time.Time) (freed int64, err error) {
	var needed, spare []string
	if c.options.InUse != nil {
		needed, spare = c.options.InUse()
	}
	for _, name := range slices.Concat(needed, spare) {
		workdir.Use(filepath.Join(c.store.Dir, name), time.Now())
	}
	_, freed, err = c.store.Collect("sha256-*", now.Add(-fresh), bound)

	for _, name := range spare {
		if err != nil || bytes-freed <= bound {
			break
		}
		if slices.Contains(needed, name) || !isEntry(name) {
			continue
		}
		var more int64
		_, more, err = c.store.Collect(name, now.Add(time.Hour), 0) // Whenever it was used.
		freed += more
	}
	return freed, err
}

// tooLarge is the error for a model that is larger than the cache.
func (c Options) tooLarge(size int64) error {
	return origin.Fatal{Err: fmt.Errorf("it has %s or more, and the cache may have %s; give the provider "+
		"a larger --models-size", bytesText(size), bytesText(c.MaxBytes))}
}

// checkEvery is how many bytes are written between two looks at the disk.
const checkEvery = 64 << 20

// budget bounds what one fetch writes: the files that it downloads, and those of their archives.
type budget struct {
	options Options
	// written and unpacked count bytes, unseen those since the last look at the disk.
	written, unpacked, unseen int64
}

// download counts bytes of a download. n is negative for those that are forgotten.
func (b *budget) download(n int64) error {
	b.written += n
	return b.check(b.written, n)
}

// unpack counts bytes of an archive's files.
func (b *budget) unpack(n int64) error {
	b.unpacked += n
	return b.check(b.unpacked, n)
}

func (b *budget) check(total, n int64) error {
	if total > b.options.MaxBytes {
		return b.options.tooLarge(total)
	}
	if b.unseen += max(n, 0); b.unseen < checkEvery {
		return nil
	}
	b.unseen = 0
	free, err := freeBytes(b.options.Dir)
	if err == nil && free < reserve {
		err = fmt.Errorf("the disk of %s has %s free, of which %s stay free; make room there, and deploy "+
			"again", b.options.Dir, bytesText(free), bytesText(reserve))
	}
	if err != nil {
		return origin.Fatal{Err: err}
	}
	return nil
}

// freeBytes is how much of a disk this user may still fill.
func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("the room on the disk of %s: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// roomError says what to do if an error is that of a full disk.
func roomError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return origin.Fatal{Err: fmt.Errorf("the disk of the cache of models is full: %w; make room "+
			"there, and deploy again", err)}
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
