package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended.
type Exit struct {
	// Known is false if the rest is unknown: the process was not our child, and
	// the kernel is older than 6.15.
	Known bool
	// Signal is the signal that killed it, 0 if it exited by itself.
	Signal syscall.Signal
	// Code is the exit status of a process that exited by itself.
	Code int
}

// String returns text for people: "killed by signal 9", "exited with status 3".
func (e Exit) String() string {
	switch {
	case !e.Known:
		return "exited"
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d", int(e.Signal))
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

// Reap returns how the process ended. If the process was a child of this one, Reap
// removes the zombie. Call it after [Watch.Wait] has returned nil.
func (w *Watch) Reap() Exit {
	const timeout = 50 * time.Millisecond
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		var status unix.WaitStatus
		pid, err := unix.Wait4(w.id.PID, &status, unix.WNOHANG, nil)
		switch {
		case pid == w.id.PID:
			return exitOf(status)
		case errors.Is(err, unix.ECHILD):
			// Another process reaps it, usually init. Only then does the
			// kernel report how it ended.
			if exit := w.exitInfo(); exit.Known {
				return exit
			}
		}
		if time.Now().After(deadline) {
			return Exit{}
		}
	}
}

// exitInfo asks the pidfd how its process ended.
func (w *Watch) exitInfo() Exit {
	if w.pidfd == nil {
		return Exit{}
	}
	conn, err := w.pidfd.SyscallConn()
	if err != nil {
		return Exit{}
	}
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	var failed error
	if err := conn.Control(func(fd uintptr) {
		failed = unix.IoctlPidfdInfo(int(fd), &info)
	}); err != nil || failed != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return Exit{}
	}
	return exitOf(unix.WaitStatus(info.Exit_code))
}

func exitOf(status unix.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Known: true, Signal: status.Signal()}
	}
	return Exit{Known: true, Code: status.ExitStatus()}
}
