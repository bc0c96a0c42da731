package watchdog

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Launcher starts the function's processes, each as the leader of a process
// group of its own.
type Launcher interface {
	// Start starts one.
	Start(program string, argv []string, attr *os.ProcAttr) (*os.Process, error)
	// Environment is what they get in addition to this process's environment.
	Environment() []string
	// User is the user that they run as, 0 if that is not one of their own.
	User() int
	// OutOfMemory counts those that the kernel killed for want of memory.
	OutOfMemory() uint64
}

// family starts the function's processes and sees to it that none is left
// behind: the groups of those that end are killed, and processes that lost
// their parent come to this one, which reaps them. There can be one family in a
// process, and nobody else may have children in it.
type family struct {
	launcher Launcher

	mu       sync.Mutex
	members  map[int]*member
	closed   bool
	started  chan struct{}
	finished chan struct{}
}

// member is one process that was started.
type member struct {
	pid int
	// exited is closed when the process has ended and its group was killed;
	// from then on status is how.
	exited chan struct{}
	status unix.WaitStatus

	mu     sync.Mutex
	reaped bool
}

func newFamily(launcher Launcher) *family {
	// Where it cannot be had, orphans are left to the machine's init.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	f := &family{
		launcher: launcher, members: map[int]*member{},
		started: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	go f.reap()
	return f
}

var errClosing = errors.New("the instance is stopping")

// start starts a process.
func (f *family) start(program string, argv []string, attr *os.ProcAttr) (*member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosing
	}
	process, err := f.launcher.Start(program, argv, attr)
	if err != nil {
		return nil, err
	}
	m := &member{pid: process.Pid, exited: make(chan struct{})}
	// reap waits for it.
	_ = process.Release()
	f.members[m.pid] = m
	f.wake()
	return m, nil
}

func (f *family) wake() {
	select {
	case f.started <- struct{}{}:
	default:
	}
}

// signal sends a signal to the process's group, unless it has ended.
func (m *member) signal(signal syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reaped {
		_ = unix.Kill(-m.pid, signal)
	}
}

// close kills all processes that were started and those that they left, and
// returns once they are gone.
func (f *family) close() {
	f.mu.Lock()
	f.closed = true
	for _, m := range f.members {
		m.signal(unix.SIGKILL)
	}
	killOrphans()
	f.mu.Unlock()
	f.wake()
	<-f.finished
}

// reap waits for children until the family is closed and none is left.
func (f *family) reap() {
	defer close(f.finished)
	for {
		pid, err := nextExited()
		switch {
		case err == nil:
			f.bury(pid)
		case errors.Is(err, unix.ECHILD):
			f.mu.Lock()
			leave := f.closed && len(f.members) == 0
			f.mu.Unlock()
			if leave {
				return
			}
			<-f.started
		}
	}
}

// bury ends a child's time as a zombie. Its group is killed before, as long as
// its number cannot be anybody else's.
func (f *family) bury(pid int) {
	// A child that is being started is not known yet.
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[pid]
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		_ = unix.Kill(-pid, unix.SIGKILL)
		m.reaped = true
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if m != nil {
		m.status = status
		delete(f.members, pid)
		close(m.exited)
	}
	if f.closed {
		killOrphans()
	}
}

// siginfo is what waitid fills in, as far as it matters here.
type siginfo struct {
	_   [3]int32
	_   [0]uintptr // What follows is aligned like a pointer.
	pid int32
	_   [112]byte
}

// nextExited waits until a child has ended and returns its pid without reaping
// it.
func nextExited() (pid int, err error) {
	for {
		var info siginfo
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return int(info.pid), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
