package queue

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often the disk is looked at while messages come.
const lookEvery = 100 * time.Millisecond

// maxReserve is the room in bytes that is kept free, less on a small disk: what
// is in the queue must still be acknowledged and moved to the dead letters.
const maxReserve = 64 << 20

// room is nil if the disk has room for more messages.
func (e *embedded) room() error {
	now := time.Now().UnixNano()
	if last := e.checked.Load(); now-last > int64(lookEvery) && e.checked.CompareAndSwap(last, now) {
		err := roomIn(e.options.Dir)
		e.full.Store(&err)
	}
	if err := e.full.Load(); err != nil {
		return *err
	}
	return nil
}

// roomIn is nil if the file system of a directory has more than its reserve
// free.
func roomIn(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("the disk of the queue: %w", err)
	}
	size, free := s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize)
	if reserve := min(maxReserve, size/10); free < reserve {
		return fmt.Errorf("the disk of the queue is full: %d bytes are free, %d are kept for what is queued already; make room in %s", free, reserve, dir)
	}
	return nil
}
