package queue

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// checkInterval is the shortest time between two checks of the disk.
const checkInterval = 100 * time.Millisecond

// maxReserve is the room in bytes that is kept free, or a tenth of a small disk. Queued
// messages need it: they must still be acknowledged or stored as dead letters.
const maxReserve = 64 << 20

// room returns nil if the disk has room for more messages.
func (e *embedded) room() error {
	now, last := time.Now(), e.checked.Load()
	if (last == nil || now.Sub(*last) > checkInterval) && e.checked.CompareAndSwap(last, &now) {
		err := roomIn(e.options.Dir)
		e.full.Store(&err)
	}
	if err := e.full.Load(); err != nil {
		return *err
	}
	return nil
}

// roomIn returns nil if the file system of a directory has at least its reserve free.
func roomIn(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("the disk of the queue: %w", err)
	}
	size, free := s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize)
	if reserve := min(maxReserve, size/10); free < reserve {
		return fmt.Errorf("the disk of the queue is full: %d bytes are free, %d are reserved for queued requests; make room in %s", free, reserve, dir)
	}
	return nil
}
