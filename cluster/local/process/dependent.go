package process

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a running or exited child process.
type Child struct {
	*exec.Cmd
	exited chan struct{}
	err    error
}

// Start starts c. The kernel sends c the signal atDeath when this process dies. A
// terminal's Ctrl-C does not reach c; the caller must stop it. c may run on the cores of
// the calling thread.
func Start(c *exec.Cmd, atDeath syscall.Signal) (*Child, error) { return startChild(c, atDeath, false) }

// StartIdle is Start for background work: the child gets only CPU time that nobody else
// wants (SCHED_IDLE).
func StartIdle(c *exec.Cmd, atDeath syscall.Signal) (*Child, error) {
	return startChild(c, atDeath, true)
}

func startChild(c *exec.Cmd, atDeath syscall.Signal, idle bool) (*Child, error) {
	// The kernel sends the signal when the forking thread ends, and Go may end
	// threads. So one thread forks and stays until the child is gone.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: atDeath, Setpgid: true}
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cores); err != nil {
		return nil, fmt.Errorf("cores of this thread: %w", err)
	}
	p := &Child{Cmd: c, exited: make(chan struct{})}
	started := make(chan error)
	go Apart(func() (clean bool) {
		err := unix.SchedSetaffinity(0, &cores)
		if err == nil && idle { // A child inherits the policy from the forking thread.
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

// Exited is closed when the process has ended.
func (p *Child) Exited() <-chan struct{} { return p.exited }

// Wait waits for the process's end and returns the result of [exec.Cmd.Wait].
func (p *Child) Wait() error {
	<-p.exited
	return p.err
}
