package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is how often a process is polled if there are no pidfds (before Linux
// 5.3, or hidden by a seccomp filter).
const pollInterval = 20 * time.Millisecond

// Watch follows one process, whether or not it is a child of this one.
type Watch struct {
	id Identity
	// pidfd refers to the process itself, never to a later one with the same pid.
	// It is in the runtime's poller; nil if there are no pidfds.
	pidfd *os.File
}

// Open begins to follow a process. The error wraps [ErrGone] if the process has exited
// or another process has its pid by now.
func Open(id Identity) (*Watch, error) {
	w := &Watch{id: id}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	switch {
	case err == nil:
		w.pidfd = os.NewFile(uintptr(fd), "pidfd")
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	// Check the identity after opening the descriptor: only then is it certain
	// which process the descriptor refers to.
	if stat, err := readStat(id.PID); err != nil || stat.startTime != id.StartTime || !sameBoot(id) {
		w.Close()
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	return w, nil
}

func sameBoot(id Identity) bool {
	boot, err := bootID()
	return err == nil && boot == id.Boot
}

// Identity returns the identity of the process that w follows.
func (w *Watch) Identity() Identity { return w.id }

// Wait returns nil once the process has exited, or ctx's error. It holds no OS
// thread while it waits. Only one Wait may run at a time.
func (w *Watch) Wait(ctx context.Context) error {
	if w.pidfd == nil {
		return w.poll(ctx)
	}
	conn, err := w.pidfd.SyscallConn()
	if err != nil {
		return w.poll(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(exited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return w.poll(ctx)
}

// exited reports whether a pidfd's process has exited, which makes the descriptor
// readable.
func exited(fd uintptr) bool {
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return ready > 0
		}
	}
}

func (w *Watch) poll(ctx context.Context) error {
	ticker := time.Tick(pollInterval)
	for w.id.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker:
		}
	}
	return nil
}

// Signal sends a signal to the process, and never to a later one with its pid.
// The error wraps [ErrGone] if it has exited.
func (w *Watch) Signal(signal syscall.Signal) error {
	err := w.signal(signal)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("pid %d: %w", w.id.PID, ErrGone)
	}
	if err != nil {
		return fmt.Errorf("signal pid %d: %w", w.id.PID, err)
	}
	return nil
}

func (w *Watch) signal(signal syscall.Signal) error {
	if w.pidfd == nil {
		if !w.id.Alive() {
			return unix.ESRCH
		}
		return unix.Kill(w.id.PID, signal)
	}
	conn, err := w.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) {
		sent = unix.PidfdSendSignal(int(fd), signal, nil, 0)
	}); err != nil {
		return err
	}
	return sent
}

// KillGroup sends SIGKILL to the process group that the process leads. It does nothing
// once the process has been reaped (see [Watch.Reap]), because another group may then
// have the number.
func (w *Watch) KillGroup() {
	if stat, err := readStat(w.id.PID); err == nil && stat.startTime == w.id.StartTime {
		_ = unix.Kill(-w.id.PID, unix.SIGKILL)
	}
}

// Close stops following the process. The process continues to run.
func (w *Watch) Close() {
	if w.pidfd != nil {
		_ = w.pidfd.Close()
	}
}
