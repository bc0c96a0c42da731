package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox/spawn"
)

// Cell starts a function's processes from its main process, in the function's isolation.
// Its methods are safe for concurrent use.
type Cell struct {
	dir   string
	notes []string
	user  int
	// env holds the variables that the cell adds to the function's environment.
	env     []string
	version int
	groups  []int
	// filter decides about the processes' system calls, nil for all. openFiles is their
	// limit, nil for this process's.
	filter    []unix.SockFilter
	openFiles *unix.Rlimit
	// jobs are run by one thread, which forks. The thread is in the function's
	// version 1 control groups. It lives as long as this process, because the
	// kernel kills a child with the thread that forked it.
	jobs chan func()
}

func newCell(p functionPlan, dir string, notes []string) (*Cell, error) {
	c := &Cell{dir: dir, notes: notes, user: p.User, version: p.Version, groups: p.Groups, openFiles: inheritedOpenFiles(), jobs: make(chan func())}
	var err error
	if p.Filter {
		if c.filter, err = spawn.Filter(); err != nil {
			return nil, fmt.Errorf("filter of system calls: %w", err)
		}
	}
	program, err := os.Executable()
	if p.Isolated {
		program = ProgramFile
		c.env = append(c.env, "HOME="+HomeDir)
	} else if err != nil {
		return nil, fmt.Errorf("this program: %w", err)
	}
	c.env = append(c.env, EnvProgram+"="+program)
	entered := make(chan error)
	go process.Apart(func() (clean bool) {
		err := c.enter()
		entered <- err
		if err == nil {
			for job := range c.jobs {
				job()
			}
		}
		return false
	})
	return c, <-entered
}

// inheritedOpenFiles returns the limit on open files that this process was started with, nil
// if it still has it. Go's runtime raises it, and lowers it again for children that package
// os starts.
func inheritedOpenFiles() *unix.Rlimit {
	var own, inherited unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil || own.Cur != own.Max-1 {
		return nil
	}
	if err := withDormant(syscall.SysProcAttr{}, func(pid int) error {
		return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &inherited)
	}); err != nil {
		return nil
	}
	return &inherited
}

// enter prepares this thread to fork the function's processes.
func (c *Cell) enter() error {
	if c.version != 1 {
		return nil
	}
	for _, group := range c.groups {
		if err := writeAt(group, "tasks", "0"); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// Close ends the forking thread. Nothing can be started any more, and children that
// still run are killed.
func (c *Cell) Close() { close(c.jobs) }

// Dir returns the function's working directory.
func (c *Cell) Dir() string { return c.dir }

// Notes says which isolation the cell lacks.
func (c *Cell) Notes() []string { return c.notes }

// User returns the user of the function's processes, 0 if it is the provider's.
func (c *Cell) User() int { return c.user }

// Environment returns the variables that the function's environment must contain.
func (c *Cell) Environment() []string { return c.env }

// Start starts a process of the function: as the function's user, in its control group, in a
// process group of its own, without a way to gain privileges and with the filter on its system
// calls. The process dies with this one. The function becomes the owner
// of pipes among attr.Files, so it can open them by name. Of attr, only Dir, Env and Files
// count; Env is the whole environment, and no file may be nil.
func (c *Cell) Start(program string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	p := spawn.Process{
		Path: program, Argv: argv, Env: attr.Env, Dir: attr.Dir, User: c.user, Group: -1, OpenFiles: c.openFiles, Filter: c.filter,
	}
	for _, file := range attr.Files {
		if c.user != 0 {
			own(file, c.user)
		}
		p.Files = append(p.Files, file.Fd())
	}
	var pid int
	var err error
	done := make(chan struct{})
	c.jobs <- func() {
		defer close(done)
		pid, err = c.fork(p)
	}
	<-done
	runtime.KeepAlive(attr.Files)
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// own makes a user the owner of a file if it is a pipe.
func own(file *os.File, user int) {
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		_ = file.Chown(user, user)
	}
}

// fork starts a process. It runs on the forking thread.
func (c *Cell) fork(p spawn.Process) (pid int, err error) {
	if c.version != 2 || len(c.groups) == 0 {
		return spawn.Start(p)
	}
	p.Group = c.groups[0]
	pid, err = spawn.Start(p)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.E2BIG) {
		return pid, err
	}
	// The kernel is older than Linux 5.7, or a filter hides clone3.
	p.Group = -1
	if pid, err = spawn.Start(p); err != nil {
		return 0, err
	}
	if err := writeAt(c.groups[0], "cgroup.procs", strconv.Itoa(pid)); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return 0, fmt.Errorf("move pid %d into its cgroup: %w", pid, err)
	}
	return pid, nil
}

// OutOfMemory returns how many of the function's processes the kernel killed for
// exceeding the memory limit; 0 if that is unknown.
func (c *Cell) OutOfMemory() uint64 {
	file := "memory.events"
	if c.version == 1 {
		file = "memory.oom_control"
	}
	for _, group := range c.groups {
		for line := range strings.Lines(readAt(group, file)) {
			if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
				count, _ := strconv.ParseUint(fields[1], 10, 64)
				return count
			}
		}
	}
	return 0
}

// writeAt writes to a file in a directory that is known only by its descriptor.
func writeAt(dir int, name, value string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// readAt reads at most 1 KiB of a file in such a directory; "" if it is missing.
func readAt(dir int, name string) string {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	text := make([]byte, 1024)
	read, err := unix.Read(fd, text)
	if err != nil {
		return ""
	}
	return string(text[:read])
}
