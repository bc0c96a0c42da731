package spawn

import (
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Filter returns the filter for functions, or why this machine cannot have it. It is the
// default profile of Docker's engine for a container without capabilities: calls that no
// ordinary program needs fail with EPERM, such as mount, bpf, keyctl, io_uring_setup and
// those that make namespaces. A call that is newer than the profile fails with ENOSYS, as on
// a kernel that lacks it, and so do all calls of 32-bit programs. The caller must not change
// the result.
func Filter() ([]unix.SockFilter, error) {
	if _, err := support(); err != nil {
		return nil, err
	}
	return filter, nil
}

// support returns the flags to set a filter with, or why the kernel takes none.
var support = sync.OnceValues(func() (flags uintptr, err error) {
	if len(filter) == 0 {
		return 0, errors.New("there is no filter for " + runtime.GOARCH)
	}
	// Before Linux 4.8, a process could evade the filter with ptrace, which it allows. The
	// kernel answers this question since 4.14.
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, address(&action)); errno != 0 {
		return 0, errors.New("the kernel has no seccomp filters or is older than Linux 4.14")
	}
	// Before Linux 5.16, the kernel slows a process with a filter down unless the filter asks
	// it not to. Before 4.17 it does not know the flag.
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
		if errno == unix.EFAULT { // Only the filter's address is wrong.
			return flags, nil
		}
	}
	return 0, errors.New("the kernel takes no seccomp filters")
})
