//go:build amd64 || arm64

package spawn

import (
	"io/fs"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Start starts a process and returns its ID. The process leads a process group of its own and
// cannot gain privileges. The kernel kills it when the calling thread ends. An error is a
// [*fs.PathError] with the kernel's reason.
func Start(p Process) (pid int, err error) {
	pipe, reporter, err := reportPipe(len(p.Files))
	if err != nil {
		return 0, &fs.PathError{Op: "make a pipe to start", Path: p.Path, Err: err}
	}
	defer unix.Close(pipe)
	files, err := raise(p.Files)
	defer closeAll(files)
	if err != nil {
		_ = unix.Close(reporter)
		return 0, &fs.PathError{Op: "pass descriptors to", Path: p.Path, Err: err}
	}
	calls, memory, err := p.calls(files)
	if err != nil {
		_ = unix.Close(reporter)
		return 0, &fs.PathError{Op: "fork/exec", Path: p.Path, Err: err}
	}
	// Other goroutines may have descriptors that are not closed on exec yet.
	syscall.ForkLock.Lock()
	child, errno := fork(p.Group, calls, uintptr(reporter))
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(memory)
	_ = unix.Close(reporter)
	if errno != 0 {
		return 0, &fs.PathError{Op: "fork to start", Path: p.Path, Err: errno}
	}
	if failed, errno := readReport(pipe); errno != 0 {
		reap(int(child))
		return 0, &fs.PathError{Op: calls[failed].name, Path: p.Path, Err: errno}
	}
	return int(child), nil
}

// calls returns the system calls by which the new process becomes p, the last of which is
// exec, and what holds their arguments in memory.
func (p Process) calls(files []int) (calls []call, memory any, err error) {
	path, err := unix.BytePtrFromString(p.Path)
	if err != nil {
		return nil, nil, err
	}
	dir, err := unix.BytePtrFromString(p.Dir)
	if err != nil {
		return nil, nil, err
	}
	argv, err := syscall.SlicePtrFromStrings(p.Argv)
	if err != nil {
		return nil, nil, err
	}
	env, err := syscall.SlicePtrFromStrings(p.Env)
	if err != nil {
		return nil, nil, err
	}
	add := func(name string, number uintptr, arguments ...uintptr) *call {
		calls = append(calls, call{name: name, number: number})
		c := &calls[len(calls)-1]
		copy(c.arguments[:], arguments)
		return c
	}
	add("make a process group to start", unix.SYS_SETPGID, 0, 0)
	if p.User != 0 {
		add("leave the groups to start", unix.SYS_SETGROUPS, 0, 0)
		add("change the group to start", unix.SYS_SETGID, uintptr(p.User))
		add("change the user to start", unix.SYS_SETUID, uintptr(p.User))
	}
	if p.Dir != "" {
		add("change the directory to start", unix.SYS_CHDIR, address(dir))
	}
	// The kernel forgets this signal when the user changes. If the parent has died by now,
	// the signal never comes.
	add("stay with this process to start", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	add("stay with this process to start", unix.SYS_GETPPID).result = uintptr(unix.Getpid())
	for to, from := range files {
		add("pass descriptors to", unix.SYS_DUP3, uintptr(from), uintptr(to), 0)
	}
	if p.OpenFiles != nil {
		add("limit the open files of", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, address(p.OpenFiles), 0)
	}
	add("forbid new privileges to", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	var filter *unix.SockFprog
	if len(p.Filter) > 0 {
		filter = &unix.SockFprog{Len: uint16(len(p.Filter)), Filter: &p.Filter[0]}
		flags, _ := support()
		add("filter the system calls of", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, address(filter))
	}
	add("fork/exec", unix.SYS_EXECVE, address(path), address(&argv[0]), address(&env[0]))
	return calls, []any{path, dir, argv, env, filter, p.OpenFiles}, nil
}

// raise duplicates descriptors to numbers above all of theirs, so that none of them is lost
// when the new process moves one after the other to its place.
func raise(files []uintptr) (raised []int, err error) {
	for _, file := range files {
		copied, err := unix.FcntlInt(file, unix.F_DUPFD_CLOEXEC, len(files))
		if err != nil {
			return raised, err
		}
		raised = append(raised, copied)
	}
	return raised, nil
}

func closeAll(files []int) {
	for _, file := range files {
		_ = unix.Close(file)
	}
}

// reportPipe makes the pipe through which the new process reports a failed call. It closes
// on exec. The writing end has a number of at least lowest.
func reportPipe(lowest int) (read, write int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, err
	}
	defer unix.Close(ends[1])
	if write, err = unix.FcntlInt(uintptr(ends[1]), unix.F_DUPFD_CLOEXEC, lowest); err != nil {
		_ = unix.Close(ends[0])
		return 0, 0, err
	}
	return ends[0], write, nil
}

// readReport waits until the new process has run its program or failed. It returns the index
// of the call that failed and why, 0 if none did.
func readReport(pipe int) (failed int, errno syscall.Errno) {
	var r report
	for {
		n, _, errno := unix.Syscall(unix.SYS_READ, uintptr(pipe), address(&r), unsafe.Sizeof(r))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, 0
		default:
			return int(r.call), syscall.Errno(r.errno)
		}
	}
}

// reap waits for the end of a process that failed to start.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// address returns a pointer as a system call takes it.
func address[T any](value *T) uintptr { return uintptr(unsafe.Pointer(value)) }
