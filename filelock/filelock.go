// Package filelock locks open files and directories against other processes, with a maximum
// wait. The kernel releases a lock when the last descriptor of the opened file is closed, so
// one that a killed process held does not stay. The package opens no file. It does not say in
// words who holds a lock: its callers know. Begin reading at [Lock].
package filelock

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/backoff"
)

// Mode says whom a lock keeps out.
type Mode int

const (
	// Shared keeps Exclusive locks out.
	Shared Mode = unix.LOCK_SH
	// Exclusive keeps all other locks out.
	Exclusive Mode = unix.LOCK_EX
)

// Forever is a wait without an end.
const Forever time.Duration = math.MaxInt64

// minPoll and maxPoll bound the time between two attempts, which doubles.
const minPoll, maxPoll = 2 * time.Millisecond, 16 * time.Millisecond

// ErrLocked says that somebody else has the lock.
var ErrLocked = errors.New("it is locked")

// Lock locks a file. If somebody else has a lock that keeps this one out, it tries again until
// the wait is over, and then returns [ErrLocked], or until ctx ends, and then returns its error.
func Lock(ctx context.Context, f *os.File, mode Mode, wait time.Duration) error {
	end := time.Now().Add(wait)
	for n := 1; ; n++ {
		if err := Try(f, mode); !errors.Is(err, ErrLocked) || !time.Now().Before(end) {
			return err
		}
		if !backoff.Wait(ctx, backoff.Pause(n, minPoll, maxPoll)) {
			return ctx.Err()
		}
	}
}

// Try is [Lock] without a wait.
func Try(f *os.File, mode Mode) error {
	for {
		switch err := unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return ErrLocked
		default:
			return err
		}
	}
}

// Unlock releases a lock before the file is closed.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
