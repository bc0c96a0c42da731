package process

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a child process that has been started.
type Child struct {
	*exec.Cmd
	exited chan struct{}
	err    error
}

// Start starts c, which gets the signal when this process dies. A terminal's
// Ctrl-C does not reach it: whoever starts it stops it. It may run on the cores
// that the caller may.
func Start(c *exec.Cmd, atDeath syscall.Signal) (*Child, error) { return startChild(c, atDeath, false) }

// StartIdle is Start for what is done in the background: the child gets what nobody else
// wants of the cores (SCHED_IDLE).
func StartIdle(c *exec.Cmd, atDeath syscall.Signal) (*Child, error) {
	return startChild(c, atDeath, true)
}

func startChild(c *exec.Cmd, atDeath syscall.Signal, idle bool) (*Child, error) {
	// The kernel sends the signal when the thread that forked ends, and Go ends
	// threads. So one thread forks, and is kept until the child is gone.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: atDeath, Setpgid: true}
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cores); err != nil {
		return nil, fmt.Errorf("cores of this thread: %w", err)
	}
	p := &Child{Cmd: c, exited: make(chan struct{})}
	started := make(chan error)
	go Apart(func() (clean bool) {
		err := unix.SchedSetaffinity(0, &cores)
		if err == nil && idle { // A child inherits it from the thread that forks.
			err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		}
		if err == nil {
			err = c.Start()
		}
		started <- err
		if err == nil {
			p.err = c.Wait()
			close(p.exited)
		}
		return false
	})
	return p, <-started
}

// Run starts c and waits for its end, as [exec.Cmd.Run] does.
func Run(c *exec.Cmd, atDeath syscall.Signal) error {
	p, err := Start(c, atDeath)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Exited is closed when the process has ended.
func (p *Child) Exited() <-chan struct{} { return p.exited }

// Wait waits for the process's end and returns what [exec.Cmd.Wait] did.
func (p *Child) Wait() error {
	<-p.exited
	return p.err
}
