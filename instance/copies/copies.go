// Package copies keeps the prepared copies of models that the instances of a cluster's node share:
// where a copy is, who makes it, and when it goes. It does not prepare a model itself, and knows
// nothing of the cluster.
//
// A node has a directory for each namespace, with a directory for each function and model in it. An
// instance sees its function's directory only. A tidier sees all of them, and needs no other right.
// Begin reading at [Hold], which an instance calls, and [Tidier.Look].
//
// The copies themselves are made in a [workdir.Store]. The rest differs from it on purpose. An instance that fails
// starts again at once, so an attempt that failed is noted and not repeated for an hour. A tidier trusts nothing in
// the directories, to which functions may write: it removes them name by name within bounds.
package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// Env names the directory in an instance's environment. A program that is older than the provider
// ignores a variable; it would refuse a flag.
const Env = "FAAS_INFER_COPIES"

const (
	// making begins the name of the file that locks the making of copies of one kind. It is not empty if
	// the last attempt did not succeed.
	making = ".making"
	// retryAfter is how long a failed attempt keeps others from trying again.
	retryAfter = time.Hour
)

var (
	// ErrMaking says that another instance is still making the copy.
	ErrMaking = errors.New("another instance is still preparing the model")
	// ErrTried says that an instance has tried to make the copy and did not succeed.
	ErrTried = errors.New("an instance tried to prepare the model less than an hour ago, and failed or was killed")
)

// Dir is the directory of a function's copies of one model, held by an instance: no tidier removes it for
// its age while it is held.
type Dir struct {
	// Path is the directory's.
	Path string
	held *os.File
}

// Hold holds a directory until Close or the end of the process. The error says why the instance cannot
// use it.
func Hold(ctx context.Context, path string) (*Dir, error) {
	// A tidier holds it exclusively for moments, or while it removes it.
	f, err := workdir.Hold(ctx, path, time.Second)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", path, err)
	}
	if err := noteUse(f, path); err != nil {
		return nil, errors.Join(fmt.Errorf("hold %s: %w", path, err), f.Close())
	}
	return &Dir{Path: path, held: f}, nil
}

// noteUse notes that a directory is used now.
func noteUse(f *os.File, path string) error {
	var is unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return err
	}
	if is.Nlink == 0 {
		return fs.ErrNotExist // It was removed between the pod's mount and now.
	}
	// Anybody who may write can set it to now.
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0)
}

// Close lets a tidier remove the directory. A nil Dir does nothing.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return d.held.Close()
}

// Once calls make unless found reports that there is a copy. One of several instances that call it at the
// same time makes the copy; the others wait for it, but no longer than patience: then the error wraps
// [ErrMaking]. After an attempt that failed, or whose process was killed, the error wraps [ErrTried] for
// an hour, so that no function spends each start with an attempt that cannot succeed.
func (d *Dir) Once(ctx context.Context, patience time.Duration, found func() bool, make func(context.Context) error) error {
	a, err := d.Begin(ctx, "", patience, found)
	if a == nil {
		return err
	}
	if err = make(ctx); err == nil && !found() {
		err = errors.New("the prepared model cannot be read")
	}
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, a.close())
	}
	return errors.Join(err, a.End()) // It was stopped, so it has not failed.
}

// Attempt is an instance's attempt to make a copy. It has failed if the process ends before its End.
type Attempt struct{ marker *os.File }

// Begin is the part of Once before make, for an instance that makes a copy of some kind while it does
// something else. The kinds know nothing of each other. The attempt is nil if there is a copy or an error,
// which is one of Once's.
func (d *Dir) Begin(ctx context.Context, kind string, patience time.Duration, found func() bool) (*Attempt, error) {
	if found() {
		return nil, nil
	}
	f, err := os.OpenFile(filepath.Join(d.Path, making+kind), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	a := &Attempt{f}
	if err := filelock.Lock(ctx, f, filelock.Exclusive, patience); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			err = fmt.Errorf("%w for more than %v", ErrMaking, patience)
		}
		return nil, errors.Join(err, a.close())
	}
	if found() {
		return nil, a.close()
	}
	if err := mark(f); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// mark notes that an attempt has begun, unless one has failed.
func mark(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 && time.Since(info.ModTime()) < retryAfter {
		return ErrTried
	}
	_, err = f.WriteAt([]byte("begun\n"), 0)
	return err
}

// End notes that the attempt has not failed. A nil attempt does nothing.
func (a *Attempt) End() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.marker.Truncate(0), a.close())
}

// close unlocks the marker and leaves what it says.
func (a *Attempt) close() error { return a.marker.Close() }
