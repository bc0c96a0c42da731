//go:build !amd64 && !arm64

package spawn

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a process and returns its ID. The process leads a process group of its own and
// cannot gain privileges. The kernel kills it when the calling thread ends. It has no filter
// here. An error is a [*fs.PathError] with the kernel's reason.
func Start(p Process) (pid int, err error) {
	// The process inherits this from the thread.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, &fs.PathError{Op: "forbid new privileges to", Path: p.Path, Err: err}
	}
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.User != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(p.User), Gid: uint32(p.User)}
	}
	if p.Group >= 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, p.Group
	}
	pid, err = syscall.ForkExec(p.Path, p.Argv, &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: p.Files, Sys: attr})
	if err != nil {
		return 0, &fs.PathError{Op: "fork/exec", Path: p.Path, Err: err}
	}
	return pid, nil
}
