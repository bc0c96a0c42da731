//go:build amd64 || arm64

package spawn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call of the new process.
type call struct {
	number    uintptr
	arguments [5]uintptr
	// result is what it must return, 0 for anything but an error.
	result uintptr
	// name completes the error "NAME PATH: reason".
	name string
}

// report says which call failed and why. A new process writes it before it exits.
type report struct{ call, errno uint32 }

// cloneArguments is the kernel's struct clone_args.
type cloneArguments struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, group uint64
}

// The runtime offers these three to package syscall, and keeps them for programs that must
// fork by themselves (go.dev/issue/67401). They keep signals and the scheduler away from the
// new process.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// vfork makes a system call that makes a process in this one's memory and stops this thread
// until the new process runs a program or exits. It returns twice.
//
//go:noescape
func vfork(number, a, b uintptr) (pid uintptr, errno syscall.Errno)

// fork makes a process that runs calls, which must end with exec, and returns when it has done
// so. The process is in the version 2 control group that is open as group, or in this one's if
// group is -1. If a call fails, the process writes a [report] to the descriptor reporter and
// exits.
//
// The new process uses the stack and the memory of this thread, which waits meanwhile. So it
// must not allocate, grow the stack or return. All that it does is in this function, in system
// calls. Declare all variables at the top, because they might be allocated.
//
//go:noinline
//go:norace
//go:nocheckptr
func fork(group int, calls []call, reporter uintptr) (pid uintptr, errno syscall.Errno) {
	const flags = unix.CLONE_VFORK | unix.CLONE_VM
	var (
		c      *call
		i      int
		failed report
		result uintptr
		clone  *cloneArguments
	)
	if group >= 0 {
		clone = &cloneArguments{flags: flags | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), group: uint64(group)}
	}
	beforeFork()
	if clone != nil {
		pid, errno = vfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(clone)), unsafe.Sizeof(*clone))
	} else { // Filters of containers forbid clone3.
		pid, errno = vfork(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0)
	}
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild()
	for i = range calls {
		c = &calls[i]
		result, _, errno = syscall.RawSyscall6(c.number, c.arguments[0], c.arguments[1], c.arguments[2], c.arguments[3], c.arguments[4], 0)
		if errno == 0 && c.result != 0 && c.result != result {
			errno = unix.ESRCH
		}
		if errno != 0 {
			break
		}
	}
	failed = report{uint32(i), uint32(errno)}
	_, _, _ = syscall.RawSyscall6(unix.SYS_WRITE, reporter, uintptr(unsafe.Pointer(&failed)), unsafe.Sizeof(failed), 0, 0, 0)
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
	}
}
