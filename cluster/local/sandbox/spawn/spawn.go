// Package spawn starts a process under a filter on its system calls. The new process gives
// itself the filter between fork and exec, because the process that forks needs calls that
// the filter forbids. Go's own way to start a process has no place for this, so the package
// forks by itself. It does not choose the user, the control group or the filter, and it does
// not wait for the process. Begin reading at [Start]; [Filter] says what is forbidden.
package spawn

import "golang.org/x/sys/unix"

// Process says what to start.
type Process struct {
	// Path is the program's file, Argv its name and arguments, and Env its environment as
	// NAME=value. Dir is its working directory, this process's if empty.
	Path      string
	Argv, Env []string
	Dir       string
	// Files become the descriptors 0, 1, 2 and so on. Of this process's other descriptors
	// it inherits those that are not closed on exec.
	Files []uintptr
	// User is its user and its only group, 0 for this process's.
	User int
	// Group is the open directory of its control group of version 2, -1 for this
	// process's.
	Group int
	// OpenFiles is its limit on open files, nil for this process's.
	OpenFiles *unix.Rlimit
	// Filter decides about its system calls, nil for all.
	Filter []unix.SockFilter
}
