package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ChildOptions say what to start.
type ChildOptions struct {
	// Argv is the command, the program's path first; Env its environment, Dir where
	// it runs.
	Argv []string
	Env  []string
	Dir  string
	// Files are descriptors that it has open from 3 on.
	Files []*os.File
	// Log is where it prints.
	Log io.Writer
}

// Child is a process that was started.
type Child struct {
	pid    int
	exited chan struct{}
	status syscall.WaitStatus
	output *os.File
	logged chan struct{}

	mu   sync.Mutex
	last []string
}

const (
	// lastLines are kept, each of at most lastBytes.
	lastLines = 40
	lastBytes = 400
	// drain is how long what a process left behind may hold its output open.
	drain = time.Second
)

// StartChild starts a process. [Child.End] must be called once it is not needed any more,
// even if it has ended.
func StartChild(o ChildOptions) (*Child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &Child{exited: make(chan struct{}), logged: make(chan struct{}), output: r}
	x := exec.Command(o.Argv[0], o.Argv[1:]...)
	x.Env, x.Dir, x.Stdout, x.Stderr, x.ExtraFiles = o.Env, o.Dir, w, w, o.Files
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

// run starts the process and waits for its end, on one thread: the kernel ends the
// process when the thread that started it ends, and Go ends threads.
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
	_ = x.Wait() // The state has its error.
	c.status, _ = x.ProcessState.Sys().(syscall.WaitStatus)
	close(c.exited)
}

// copy passes on what the process prints and keeps the last lines.
func (c *Child) copy(to io.Writer) {
	defer close(c.logged)
	buffer := make([]byte, 8192)
	var line []byte
	for {
		n, err := c.output.Read(buffer)
		if n > 0 {
			_, _ = to.Write(buffer[:n]) // A log that is lost stops no server.
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
	c.last = append(c.last, line)
	if len(c.last) > lastLines {
		c.last = append(c.last[:0], c.last[1:]...)
	}
}

// Last are the lines that it printed last, the oldest first.
func (c *Child) Last() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.last...)
}

// PID is the process's number.
func (c *Child) PID() int { return c.pid }

// Exited is closed when the process has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// How says how the process ended. To be called once it has.
func (c *Child) How() string {
	if c.status.Signaled() {
		if c.status.Signal() == syscall.SIGKILL {
			return "was killed, as the kernel does where the memory limit is reached"
		}
		return fmt.Sprintf("was ended by the signal %s (%v)", unix.SignalName(c.status.Signal()), c.status.Signal())
	}
	return fmt.Sprintf("exited with status %d", c.status.ExitStatus())
}

// Kill kills the process and all of its session.
func (c *Child) Kill() {
	for _, pid := range c.session() {
		_ = unix.Kill(pid, unix.SIGKILL) // It may be gone.
	}
}

// End asks the process to leave, kills it and all of its session if it has not after
// so long, and returns when it has ended and what it printed is in the log.
func (c *Child) End(patience time.Duration) error {
	if patience > 0 {
		_ = unix.Kill(c.pid, unix.SIGTERM) // It may be gone.
		select {
		case <-c.exited:
		case <-time.After(patience):
		}
	}
	c.Kill()
	select {
	case <-c.exited:
	default: // It may not have had its session yet.
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
	<-c.exited
	err := c.output.SetReadDeadline(time.Now().Add(drain))
	<-c.logged
	return errors.Join(err, c.output.Close())
}
