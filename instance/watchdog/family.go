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
	// Start starts one.
	Start(program string, argv []string, attr *os.ProcAttr) (*os.Process, error)
	// User is the user that they run as, 0 if that is not one of their own.
	User() int
	// OutOfMemory counts those that the kernel killed for want of memory.
	OutOfMemory() uint64
}

// Program is what to start.
type Program struct {
	// Path is the file, Argv the arguments, the program's name first, Env the
	// environment as NAME=value.
	Path string
	Argv []string
	Env  []string
}

// Family starts the function's processes: the groups of those that end are
// killed, and processes that lost their parent come to this one, which reaps
// them. There can be one family in a process, and nobody else may have children
// in it. It is safe for concurrent use.
type Family struct {
	launcher Launcher

	mu       sync.Mutex
	members  map[int]*Member
	closed   bool
	started  chan struct{}
	finished chan struct{}
}

// Member is one process that was started.
type Member struct {
	family *Family
	pid    int
	// exited is closed when the process has ended and its group was killed;
	// from then on status is how.
	exited chan struct{}
	status unix.WaitStatus
	// kills is the number of processes that had been killed for want of memory
	// when it started.
	kills uint64

	mu     sync.Mutex
	reaped bool
}

// NewFamily returns a family whose processes launcher starts. Close ends it.
func NewFamily(launcher Launcher) *Family {
	// Where it cannot be had, orphans are left to the machine's init.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	f := &Family{
		launcher: launcher, members: map[int]*Member{},
		started: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	go f.reap()
	return f
}

var (
	// ErrClosed says that the family was closed.
	ErrClosed = errors.New("the instance is stopping")
	// ErrOutOfMemory says that a process was killed because it needed more
	// memory than the function may use.
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
	// reap waits for it.
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

// User is the user that the processes run as, 0 if that is not one of their
// own.
func (f *Family) User() int { return f.launcher.User() }

// Exited is closed when the process has ended.
func (m *Member) Exited() <-chan struct{} { return m.exited }

// Status is how the process ended. To be called once it has.
func (m *Member) Status() unix.WaitStatus { return m.status }

// Failure is nil if the process ended with exit status 0. It is
// [ErrOutOfMemory] if the kernel killed it for that, and says the exit status
// or the signal otherwise. To be called once the process has ended.
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

// Close kills all processes that were started and those that they left, and
// returns once they are gone.
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

// reap waits for children until the family is closed and none is left.
func (f *Family) reap() {
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
func (f *Family) bury(pid int) {
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
