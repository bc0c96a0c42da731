package watchdog

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Launcher starts the function's processes, each as the leader of a process
// group of its own.
type Launcher interface {
	// Start starts a process.
	Start(program string, argv []string, attr *os.ProcAttr) (*os.Process, error)
	// User returns the ID of the user that only these processes run as, 0 if there is
	// none.
	User() int
	// OutOfMemory returns the number of processes that the kernel has killed at the
	// memory limit.
	OutOfMemory() uint64
}

// Program says what to start.
type Program struct {
	// Path is the file. Argv holds the program's name and its arguments. Env is the
	// environment as NAME=value.
	Path string
	Argv []string
	Env  []string
}

// Family starts the function's processes and reaps them. When one of them ends, it kills
// the rest of that process's group. It adopts and reaps orphaned descendants, too. A
// process can have only one Family and no other children. It is safe for concurrent use.
type Family struct {
	launcher Launcher

	mu       sync.Mutex
	members  map[int]*Member
	closed   bool
	started  chan struct{}
	finished chan struct{}
}

// Member is one process of a Family.
type Member struct {
	family *Family
	pid    int
	// exited is closed when the process has ended and its group has been killed. status
	// is valid from then on.
	exited chan struct{}
	status unix.WaitStatus
	// kills is the Launcher's OutOfMemory at the process's start.
	kills uint64

	mu     sync.Mutex
	reaped bool
}

// newFamily returns a Family whose processes launcher starts. Close ends it.
func newFamily(launcher Launcher) *Family {
	// If this fails, orphans go to the machine's init.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	f := &Family{
		launcher: launcher, members: map[int]*Member{},
		started: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	go f.reap()
	return f
}

var (
	// ErrClosed says that the Family is closed.
	ErrClosed = errors.New("the instance is stopping")
	// ErrOutOfMemory says that the kernel killed a process at the function's memory
	// limit.
	ErrOutOfMemory = errors.New("out of memory: the function's process was killed at its memory limit")
)

// Start starts a process with its standard streams. The error is [ErrClosed]
// after Close.
func (f *Family) Start(p Program, streams [3]*os.File) (*Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	kills := f.launcher.OutOfMemory()
	process, err := f.launcher.Start(p.Path, p.Argv, &os.ProcAttr{Env: p.Env, Files: streams[:]})
	if err != nil {
		return nil, err
	}
	m := &Member{family: f, pid: process.Pid, exited: make(chan struct{}), kills: kills}
	// reap waits for the process instead.
	_ = process.Release()
	f.members[m.pid] = m
	f.wake()
	return m, nil
}

func (f *Family) wake() {
	select {
	case f.started <- struct{}{}:
	default:
	}
}

// User returns the Launcher's User.
func (f *Family) User() int { return f.launcher.User() }

// Exited is closed when the process has ended.
func (m *Member) Exited() <-chan struct{} { return m.exited }

// Status returns how the process ended. Call it only after Exited is closed.
func (m *Member) Status() unix.WaitStatus { return m.status }

// Failure returns nil if the process ended with exit status 0, and [ErrOutOfMemory] if the
// kernel killed it at the memory limit. Otherwise the error has the exit status or the
// signal. Call it only after Exited is closed.
func (m *Member) Failure() error {
	switch status := m.status; {
	case !status.Signaled() && status.ExitStatus() == 0:
		return nil
	case !status.Signaled():
		return fmt.Errorf("exit status %d", status.ExitStatus())
	case status.Signal() == unix.SIGKILL && m.family.launcher.OutOfMemory() > m.kills:
		return ErrOutOfMemory
	default:
		return errors.New("signal: " + status.Signal().String())
	}
}

// Signal sends a signal to the process's group, unless it has ended.
func (m *Member) Signal(signal syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reaped {
		_ = unix.Kill(-m.pid, signal)
	}
}

// Close kills all processes and their orphans, and returns once they are gone.
func (f *Family) Close() {
	f.mu.Lock()
	f.closed = true
	for _, m := range f.members {
		m.Signal(unix.SIGKILL)
	}
	killOrphans()
	f.mu.Unlock()
	f.wake()
	<-f.finished
}

// reap waits for children until the Family is closed and none is left.
func (f *Family) reap() {
	defer close(f.finished)
	for {
		pid, err := nextExited()
		switch {
		case err == nil:
			f.reapChild(pid)
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

// reapChild reaps a child. Before that it kills the child's group, while the kernel cannot
// have given the child's ID to another process.
func (f *Family) reapChild(pid int) {
	// Start holds this lock until a new child is in members.
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

// siginfo is the kernel's siginfo_t, of which only the pid matters here.
type siginfo struct {
	_   [3]int32
	_   [0]uintptr // The next field is aligned like a pointer.
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
