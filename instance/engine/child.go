package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/postmortem"
)

// ChildOptions say what program to start and how.
type ChildOptions struct {
	// Argv is the command: the program's path, then its arguments. Env is its
	// environment, to which [NoTelemetry] is added, Dir its working directory.
	Argv []string
	Env  []string
	Dir  string
	// Files become the child's file descriptors from 3 on.
	Files []*os.File
	// Log receives the child's output.
	Log io.Writer
}

// Environment returns this process's environment variables, without the one that is for an instance's process alone.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FAAS_INFER_READY_FD=") })
}

// Child is a process beside the instance, started by [StartChild].
type Child struct {
	pid    int
	exited chan struct{}
	status syscall.WaitStatus
	output *os.File
	logged chan struct{}

	mu   sync.Mutex
	last []string
	// crash holds the lines from the last headline of a crash report on, few of them.
	crash []string
}

const (
	// crashLines is how many lines from the headline of a crash report a Child keeps.
	crashLines = 8
	// lastLines is how many lines of output a Child keeps, each of at most lastBytes.
	lastLines = 40
	lastBytes = 400
	// drain is how long End waits for output when a process has left another one
	// behind that holds the output open.
	drain = time.Second
)

// StartChild starts a process in a session of its own. It dies with the instance. Call
// [Child.End] once it is no longer needed, even if it has exited.
func StartChild(o ChildOptions) (*Child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &Child{exited: make(chan struct{}), logged: make(chan struct{}), output: r}
	x := exec.Command(o.Argv[0], o.Argv[1:]...)
	x.Env = append(o.Env[:len(o.Env):len(o.Env)], NoTelemetry)
	x.Dir, x.Stdout, x.Stderr, x.ExtraFiles = o.Dir, w, w, o.Files
	x.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go c.run(x, started)
	err = <-started
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start %s: %w", o.Argv[0], err)
	}
	go c.copy(o.Log)
	return c, nil
}

// run starts the process and waits for its end, all on one locked thread. The kernel
// kills the process when the thread that started it ends (PR_SET_PDEATHSIG), and Go
// ends idle threads.
func (c *Child) run(x *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := x.Start()
	if err == nil {
		c.pid = x.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	_ = x.Wait() // ProcessState holds the result.
	c.status, _ = x.ProcessState.Sys().(syscall.WaitStatus)
	close(c.exited)
}

// copy copies the process's output to the log and keeps the last lines.
func (c *Child) copy(to io.Writer) {
	defer close(c.logged)
	buffer := make([]byte, 8192)
	var line []byte
	for {
		n, err := c.output.Read(buffer)
		if n > 0 {
			_, _ = to.Write(buffer[:n]) // A server runs on without its log.
		}
		for _, b := range buffer[:n] {
			if b != '\n' {
				if len(line) < lastBytes {
					line = append(line, b)
				}
				continue
			}
			c.keep(string(line))
			line = line[:0]
		}
		if err != nil {
			c.keep(string(line))
			return
		}
	}
}

func (c *Child) keep(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case postmortem.Headline(line) && len(c.crash) >= crashLines:
		c.crash = []string{line}
	case postmortem.Headline(line) || len(c.crash) > 0 && len(c.crash) < crashLines:
		c.crash = append(c.crash, line)
	}
	c.last = append(c.last, line)
	if len(c.last) > lastLines {
		c.last = append(c.last[:0], c.last[1:]...)
	}
}

// Last returns the last lines of output, the oldest first.
func (c *Child) Last() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.last...)
}

// PID returns the process's ID.
func (c *Child) PID() int { return c.pid }

// Exited is closed when the process has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Killed reports whether SIGKILL ended the process. Call it only after Exited is closed.
func (c *Child) Killed() bool { return c.status.Signaled() && c.status.Signal() == syscall.SIGKILL }

// How says how the process ended. Call it only after Exited is closed.
func (c *Child) How() string { return postmortem.Status(c.status) }

// Why is How with what the output says of it, see [postmortem.Cause]. Call it only after End, when the output is complete.
func (c *Child) Why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The crash report's beginning may be none of the last lines.
	output := strings.Join(append(c.crash[:len(c.crash):len(c.crash)], c.last...), "\n")
	if cause := postmortem.Cause(postmortem.Code(c.status), output); cause != "" {
		return c.How() + ": " + cause
	}
	return c.How()
}

// Kill kills the process and all of its session.
func (c *Child) Kill() {
	for _, pid := range c.session() {
		_ = unix.Kill(pid, unix.SIGKILL) // The process may be gone.
	}
}

// End sends SIGTERM, waits up to patience for the process to exit, then kills what is
// left of its session. It returns when the process has ended and its output is in the
// log.
func (c *Child) End(patience time.Duration) error {
	if patience > 0 {
		_ = unix.Kill(c.pid, unix.SIGTERM) // The process may be gone.
		select {
		case <-c.exited:
		case <-time.After(patience):
		}
	}
	c.Kill()
	select {
	case <-c.exited:
	default: // The child may not have created its session yet.
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
	<-c.exited
	err := c.output.SetReadDeadline(time.Now().Add(drain))
	<-c.logged
	return errors.Join(err, c.output.Close())
}
