package operators

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// MaxSize is the maximum size of a file in bytes: some million rows.
const MaxSize = 1 << 30

// lockWait is the maximum wait for another process's lock. Appending takes a few
// milliseconds.
const lockWait = 10 * time.Second

// acquire locks the file at the path and reads the part that db lacks. If it succeeds,
// the caller must call unlock.
func (f *File) acquire() error {
	for {
		if err := f.lockCurrent(); err != nil {
			return err
		}
		damage, err := f.catchUp()
		if err == nil && len(damage) == 0 {
			return nil
		}
		if err == nil {
			err = f.repair()
		}
		// The repair put another file at the path.
		if err := errors.Join(err, f.release()); err != nil {
			return fmt.Errorf("operator profiles %s: %w", f.path, err)
		}
	}
}

// lockCurrent opens the file if it is not open, and locks it. Until the lock is held,
// another process may replace the file by a repaired one.
func (f *File) lockCurrent() error {
	for {
		if f.f == nil {
			if err := f.open(); err != nil {
				return fmt.Errorf("operator profiles: %w", err)
			}
		}
		if err := lock(f.f, filelock.Exclusive, lockWait); err != nil {
			return errors.Join(err, f.release())
		}
		mine, err := f.f.Stat()
		if err != nil {
			return errors.Join(fmt.Errorf("operator profiles: %w", err), f.release())
		}
		current, err := os.Stat(f.path)
		if err == nil && os.SameFile(mine, current) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("operator profiles: %w", err), f.release())
		}
		if err := f.release(); err != nil {
			return fmt.Errorf("operator profiles: %w", err)
		}
	}
}

func (f *File) open() error {
	if err := regular(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	f.f = file
	f.forget()
	return syncDir(filepath.Dir(f.path))
}

// forget makes the next acquire read the whole file.
func (f *File) forget() { f.db, f.size = &database.Database{}, 0 }

// catchUp reads the part of the file that db lacks, and writes the header of an empty
// file. The caller holds the lock.
func (f *File) catchUp() ([]database.Damage, error) {
	info, err := f.f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < f.size {
		f.forget()
	}
	data, err := readFrom(f.f, f.size, info.Size())
	if err != nil {
		return nil, err
	}
	var damage []database.Damage
	if f.size == 0 {
		f.db, damage, err = database.Decode(data)
	} else {
		damage, err = f.db.Append(data)
	}
	if err != nil || len(damage) > 0 {
		f.forget()
		return damage, err
	}
	f.size = info.Size()
	switch {
	case f.size == 0:
		return nil, f.extend(database.Header())
	case len(data) > 0 && data[len(data)-1] != '\n':
		return nil, f.extend([]byte{'\n'})
	}
	return nil, nil
}

// write appends text.
func (f *File) write(text []byte) error {
	if err := f.acquire(); err != nil {
		return err
	}
	return errors.Join(f.extend(text), f.unlock())
}

// extend appends text, whole or not at all. The caller holds the lock.
func (f *File) extend(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := f.f.Write(text); err != nil {
		// The next reader would take a part of the text for damage.
		return fmt.Errorf("operator profiles: %w; the rows so far are kept", errors.Join(err, f.f.Truncate(f.size)))
	}
	f.size += int64(len(text))
	return nil
}

func (f *File) unlock() error {
	if err := filelock.Unlock(f.f); err != nil {
		return fmt.Errorf("operator profiles %s: unlock: %w", f.path, err)
	}
	return nil
}

// release closes the file, which releases the lock.
func (f *File) release() error {
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	f.forget()
	return err
}

// lock waits for a lock on an open file.
func lock(f *os.File, mode filelock.Mode, wait time.Duration) error {
	err := filelock.Lock(context.Background(), f, mode, wait)
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("operator profiles %s: another process has kept the file locked for %v; stop it, or give another file", f.Name(), wait)
	}
	if err != nil {
		return fmt.Errorf("operator profiles %s: lock: %w", f.Name(), err)
	}
	return nil
}

// read returns a file's content, under a shared lock.
func read(path string) ([]byte, error) {
	if err := regular(path); err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	defer f.Close() // The file was only read.
	if err := lock(f, filelock.Shared, lockWait); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	return readFrom(f, 0, info.Size())
}

func readFrom(f *os.File, from, to int64) ([]byte, error) {
	if to > MaxSize {
		return nil, fmt.Errorf("operator profiles %s: the file has %d MiB, more than %d; give another file, or one with fewer machines", f.Name(), to>>20, MaxSize>>20)
	}
	data := make([]byte, to-from)
	if n, err := f.ReadAt(data, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("operator profiles: %w", err)
	} else if n < len(data) {
		data = data[:n]
	}
	return data, nil
}

// regular returns an error for a directory, a device or a pipe.
func regular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}
