package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
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
	// jobs are run by one thread, which forks. The thread is in the function's
	// version 1 control groups. It lives as long as this process, because the
	// kernel kills a child with the thread that forked it.
	jobs chan func()
}

func newCell(p functionPlan, dir string, notes []string) (*Cell, error) {
	c := &Cell{dir: dir, notes: notes, user: p.User, version: p.Version, groups: p.Groups, jobs: make(chan func())}
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

// enter prepares this thread to fork the function's processes.
func (c *Cell) enter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
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

// Start starts a process of the function: as the function's user, in its control group
// and in a process group of its own. The process dies with this one. The function becomes
// the owner of pipes among attr.Files, so it can open them by name.
func (c *Cell) Start(program string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	started := *attr
	started.Sys = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.user != 0 {
		started.Sys.Credential = &syscall.Credential{Uid: uint32(c.user), Gid: uint32(c.user)}
		for _, file := range attr.Files {
			own(file, c.user)
		}
	}
	var child *os.Process
	var err error
	done := make(chan struct{})
	c.jobs <- func() {
		defer close(done)
		child, err = c.fork(program, argv, &started)
	}
	<-done
	return child, err
}

// own makes a user the owner of a file if it is a pipe.
func own(file *os.File, user int) {
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		_ = file.Chown(user, user)
	}
}

// fork starts a process. It runs on the forking thread.
func (c *Cell) fork(program string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	if c.version != 2 || len(c.groups) == 0 {
		return os.StartProcess(program, argv, attr)
	}
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, c.groups[0]
	child, err := os.StartProcess(program, argv, attr)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.E2BIG) {
		return child, err
	}
	// The kernel is older than Linux 5.7, or a filter hides clone3.
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = false, 0
	if child, err = os.StartProcess(program, argv, attr); err != nil {
		return nil, err
	}
	if err := writeAt(c.groups[0], "cgroup.procs", strconv.Itoa(child.Pid)); err != nil {
		_ = child.Kill()
		_, _ = child.Wait()
		return nil, fmt.Errorf("move pid %d into its cgroup: %w", child.Pid, err)
	}
	return child, nil
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
