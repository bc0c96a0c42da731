package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pacer wakes its caller at points in time. In an idle process, the Go runtime's timers
// round up to the next millisecond. At thousands of requests per second, that is more
// than the latencies to be measured. A timerfd that is read through the runtime's poller
// is about 30 µs late.
type pacer struct {
	file  *os.File
	start time.Time
	stop  func() bool
	// expirations receives what a read of the timerfd returns.
	expirations [8]byte
}

// newPacer returns a pacer whose time starts now. When ctx ends, wait returns at once.
func newPacer(ctx context.Context) (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make a timer: %w", err)
	}
	p := &pacer{file: os.NewFile(uintptr(fd), "timerfd"), start: time.Now()}
	p.stop = context.AfterFunc(ctx, func() { p.file.SetReadDeadline(time.Unix(1, 0)) })
	return p, nil
}

// now returns the time since the start.
func (p *pacer) now() time.Duration { return time.Since(p.start) }

// wait returns at the offset t from the start, or when the pacer's context
// ends.
func (p *pacer) wait(t time.Duration) error {
	d := t - p.now()
	if d <= 0 {
		return nil
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.TimerfdSettime(int(fd), 0, &once, nil) }); err != nil {
		return err
	}
	if set != nil {
		return fmt.Errorf("cannot set the timer: %w", set)
	}
	_, err = p.file.Read(p.expirations[:])
	return err
}

func (p *pacer) close() {
	p.stop()
	p.file.Close()
}
