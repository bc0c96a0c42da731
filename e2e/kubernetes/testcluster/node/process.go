package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Process is a started program.
type Process struct {
	// Name is the program's name, Log the file of its output.
	Name, Log string
	command   *exec.Cmd
	exited    chan struct{}
	err       error
}

// StartProcess starts a program and appends its output to a file. If env is nil, the
// program has this process's environment.
func StartProcess(log string, env []string, name string, arguments ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer file.Close()
	c := exec.Command(name, arguments...)
	c.Env, c.Stdout, c.Stderr = env, file, file
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, Log: log, command: c, exited: make(chan struct{})}
	go func() {
		p.err = c.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Pid returns the program's process ID.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Alive returns nil while the program runs. Otherwise it returns an error with its status
// and its last output.
func (p *Process) Alive() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended (%v): %s", p.Name, p.err, p.Tail(6))
	default:
		return nil
	}
}

// Kill kills the program and waits for its end.
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL) }

// Terminate sends SIGTERM and waits for the program's end.
func (p *Process) Terminate() error { return p.signal(syscall.SIGTERM) }

func (p *Process) signal(s syscall.Signal) error {
	if err := p.command.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	<-p.exited
	return nil
}

// Tail returns the last lines of the program's log.
func (p *Process) Tail(lines int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
