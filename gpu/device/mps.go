package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// MPSProgram is both the daemon and the tool that sends it commands. It comes with the
// driver.
const MPSProgram = "nvidia-cuda-mps-control"

// MPSOptions say how the daemon runs.
type MPSOptions struct {
	// Program is [MPSProgram] by default.
	Program string
	// Directory holds the directories of the daemon's pipes and of its log.
	Directory string
	// Devices are the UUIDs of the GPUs that it shares.
	Devices []string
}

// Of returns the options of the daemon of one GPU, in a directory of its own below these options'. The
// directory's name is the part of the UUID behind GPU-, up to the first hyphen: the paths of sockets must
// be short.
func (o MPSOptions) Of(uuid string) MPSOptions {
	name, _, _ := strings.Cut(strings.TrimPrefix(uuid, "GPU-"), "-")
	o.Directory, o.Devices = filepath.Join(o.Directory, name), []string{uuid}
	return o
}

// Pipes returns the directory in which the daemon listens, for CUDA_MPS_PIPE_DIRECTORY.
func (o MPSOptions) Pipes() string { return filepath.Join(o.Directory, "pipe") }

func (o MPSOptions) logs() string { return filepath.Join(o.Directory, "log") }

// MPSDaemon is a running MPS control daemon, a child of this process.
type MPSDaemon struct {
	options MPSOptions
	command *exec.Cmd
	exited  chan struct{}
	// state is the result of its Wait, valid once exited is closed. stop makes Stop
	// end it once.
	state error
	stop  sync.Once
}

const (
	// answerTimeout is how long the daemon may take to start, and to answer a command.
	answerTimeout = 10 * time.Second
	// grace is how long it may take to exit.
	grace = 5 * time.Second
)

// StartMPS starts the daemon and returns once it answers. It returns an error if another
// daemon, which may share other GPUs, listens in the same directory.
func StartMPS(ctx context.Context, o MPSOptions) (*MPSDaemon, error) {
	command, err := o.Command(ctx)
	if err != nil {
		return nil, err
	}
	o.Program = command.Path
	d := &MPSDaemon{options: o, command: command, exited: make(chan struct{})}
	if err := d.command.Start(); err != nil {
		return nil, fmt.Errorf("start the MPS daemon: %w", err)
	}
	go func() {
		d.state = d.command.Wait()
		close(d.exited)
	}()
	if err := o.Await(ctx, d.exited); err != nil {
		return nil, errors.Join(fmt.Errorf("start the MPS daemon: %w%s", err, o.LastLine()), d.Stop())
	}
	return d, nil
}

// Command makes the directories and returns the command that starts the daemon, for a caller that
// follows its process. It returns an error if another daemon listens in the same directory.
func (o MPSOptions) Command(ctx context.Context) (*exec.Cmd, error) {
	if len(o.Devices) == 0 {
		return nil, errors.New("start the MPS daemon: there is no GPU to share")
	}
	program, err := exec.LookPath(cmp.Or(o.Program, MPSProgram))
	if err != nil {
		return nil, fmt.Errorf("start the MPS daemon: %w: it comes with NVIDIA's driver (in a container, NVIDIA_DRIVER_CAPABILITIES must have \"utility\")", err)
	}
	o.Program = program
	// Instances' users must reach the sockets and must not write here.
	for _, dir := range []string{o.Pipes(), o.logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("start the MPS daemon: %w", err)
		}
	}
	if err := o.Healthy(ctx); err == nil {
		return nil, fmt.Errorf("start the MPS daemon: another one listens in %s already; end it with: echo quit | CUDA_MPS_PIPE_DIRECTORY=%s %s", o.Pipes(), o.Pipes(), MPSProgram)
	}
	c := exec.Command(program, "-f")
	c.Env = o.environment()
	// In a process group of its own, it gets no signals from the terminal. It is ended in order.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c, nil
}

// environment returns the environment of the daemon and of its tool, by which they find
// each other: that of this process, with other CUDA variables.
func (o MPSOptions) environment() []string {
	var env []string
	for _, v := range os.Environ() {
		// This process's own share of a GPU does not apply to the daemon.
		if !strings.HasPrefix(v, "CUDA_") {
			env = append(env, v)
		}
	}
	return append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(o.Devices, ","),
		"CUDA_MPS_PIPE_DIRECTORY="+o.Pipes(), "CUDA_MPS_LOG_DIRECTORY="+o.logs())
}

// Await waits until the daemon answers, at most [answerTimeout]. It returns at once if exited, which
// says that the daemon has ended, is closed.
func (o MPSOptions) Await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		err := o.Healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Healthy returns nil if the daemon answers, or otherwise the reason.
func (d *MPSDaemon) Healthy(ctx context.Context) error {
	if d.Ended() {
		return fmt.Errorf("the MPS daemon ended: %w%s", cmp.Or(d.state, errors.New("without an error")), d.options.LastLine())
	}
	return d.options.Healthy(ctx)
}

// Healthy returns nil if a daemon with these options answers: it gets a command that changes
// nothing.
func (o MPSOptions) Healthy(ctx context.Context) error {
	_, err := o.ask(ctx, "get_default_active_thread_percentage")
	return err
}

// Quit asks the daemon to end, and with it the processes that use it.
func (o MPSOptions) Quit(ctx context.Context) error {
	_, err := o.ask(ctx, "quit")
	return err
}

// PID returns the process of the daemon that listens in the directory, from the file that it writes
// there.
func (o MPSOptions) PID() (int, error) {
	text, err := os.ReadFile(filepath.Join(o.Pipes(), MPSProgram+".pid"))
	if err != nil {
		return 0, fmt.Errorf("the MPS daemon's process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the MPS daemon's process: %w", err)
	}
	return pid, nil
}

// ask sends the daemon one command and returns its answer.
func (o MPSOptions) ask(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, cmp.Or(o.Program, MPSProgram))
	c.Env, c.Stdin = o.environment(), strings.NewReader(command+"\n")
	out, err := c.CombinedOutput()
	answer := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("ask the MPS daemon for %s: %w: %s", command, err, answer)
	}
	return answer, nil
}

// Exited is closed when the daemon has ended.
func (d *MPSDaemon) Exited() <-chan struct{} { return d.exited }

// Ended reports whether the daemon has ended.
func (d *MPSDaemon) Ended() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// Stop ends the daemon, and with it the processes that use it. It returns when the daemon
// is gone.
func (d *MPSDaemon) Stop() error {
	var err error
	d.stop.Do(func() { err = d.end() })
	<-d.exited
	return err
}

func (d *MPSDaemon) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if d.Ended() {
		return nil
	}
	if d.options.Quit(ctx) != nil {
		_ = d.command.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-d.exited:
		return nil
	case <-ctx.Done():
	}
	// Kill the process group, because the MPS servers are the daemon's children.
	if err := syscall.Kill(-d.command.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the MPS daemon: %w", err)
	}
	return nil
}

// LastLine returns the last line of the daemon's log after ": ", for the end of an error;
// "" if there is none.
func (o MPSOptions) LastLine() string {
	text, err := os.ReadFile(filepath.Join(o.logs(), "control.log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
