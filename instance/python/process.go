package python

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/postmortem"
)

// runner is the program of a handler's process, and of a warm one.
//
//go:embed runner/runner.py
var runner []byte

// process is a Python process that runs a handler.
type process struct {
	channel
	pid int
	// life is closed to end the process. The kernel closes it if this process dies.
	life *os.File
	// in is the memory for inputs, out that for outputs.
	in, out *shared.Memory
	// lastBody is the latest reply as text, lastReply the same decoded.
	lastBody  []byte
	lastReply reply
	// ended is closed once the process has ended. how then says how it ended, and killed
	// whether SIGKILL may have ended it.
	ended  chan struct{}
	how    string
	killed bool
}

// ends are the process's ends of the sockets.
type ends struct{ control, life *os.File }

func (e ends) close() {
	e.control.Close()
	e.life.Close()
}

// newProcess makes the sockets and the shared memory of a process, but does not start it.
func newProcess() (*process, ends, error) {
	p := &process{ended: make(chan struct{})}
	ours, control, err := pair("control")
	if err != nil {
		return nil, ends{}, err
	}
	life, theirs, err := pair("life")
	if err != nil {
		ours.Close()
		control.Close()
		return nil, ends{}, err
	}
	p.life = life
	p.conn, err = net.FileConn(ours)
	ours.Close()
	if err == nil {
		p.in, err = shared.New("inputs")
	}
	if err == nil {
		p.out, err = shared.New("outputs")
	}
	if err != nil {
		ends{control, theirs}.close()
		return nil, ends{}, errors.Join(err, p.release())
	}
	return p, ends{control, theirs}, nil
}

func pair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// start starts a process without a warm one.
func start(python string, log *os.File, env []string) (*process, error) {
	p, theirs, err := newProcess()
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	c, script, err := command(python, "serve")
	if err != nil {
		return nil, errors.Join(err, p.release())
	}
	defer script.Close()
	c.Env, c.Stdout, c.Stderr = env, log, log
	c.ExtraFiles = []*os.File{theirs.control, theirs.life, p.in.File(), p.out.File(), script}
	if err := c.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", python, err), p.release())
	}
	p.pid = c.Process.Pid
	go func() {
		defer close(p.ended)
		for errors.Is(unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		// What the handler has started must not outlive it. Until Wait nobody else gets the number.
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = c.Wait() // ProcessState holds the result.
		status, _ := c.ProcessState.Sys().(syscall.WaitStatus)
		p.how, p.killed = postmortem.Status(status), killed(status)
	}()
	return p, nil
}

// scriptFD is the file descriptor of the runner's source in its process.
const scriptFD = 7

// command returns the command that runs the runner in a new session. The caller must pass
// the returned file as descriptor scriptFD.
func command(python string, arguments ...string) (*exec.Cmd, *os.File, error) {
	fd, err := unix.MemfdCreate("runner.py", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	script := os.NewFile(uintptr(fd), "runner.py")
	if _, err := script.WriteAt(runner, 0); err != nil {
		return nil, nil, errors.Join(err, script.Close())
	}
	c := exec.Command(python, append([]string{"-s", "-u", fmt.Sprintf("/dev/fd/%d", scriptFD)}, arguments...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c, script, nil
}

// end kills the process with all that it has started, and frees its sockets and memory.
func (p *process) end() error {
	select {
	case <-p.ended:
	default:
		if p.pid > 0 { // It leads a process group, but may not have created it yet.
			_ = unix.Kill(-p.pid, unix.SIGKILL)
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
	err := p.release()
	<-p.ended
	return err
}

// reply reads the answer to a call. Similar batches get identical answers, so it decodes
// an answer only if it differs from the last one. The caller must not change the result.
func (p *process) reply(tick func() error) (reply, error) {
	body, err := p.body(tick)
	if err != nil {
		return reply{}, err
	}
	if !bytes.Equal(body, p.lastBody) || p.lastBody == nil {
		var r reply
		if err := json.Unmarshal(body, &r); err != nil {
			return reply{}, err
		}
		p.lastBody, p.lastReply = body, r
	}
	return p.lastReply, nil
}

func (p *process) release() error {
	var errs []error
	if p.conn != nil {
		errs = append(errs, p.conn.Close())
	}
	if p.life != nil {
		errs = append(errs, p.life.Close())
	}
	for _, s := range []*shared.Memory{p.in, p.out} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
