package guide

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// prompt is the beginning of the lines in which the shell reports the end of a command.
const prompt = "guide:"

// shell is the reader's terminal. Its variables and directory last from one command to the
// next.
type shell struct {
	reader   *Reader
	scratch  string
	process  *exec.Cmd
	commands io.WriteCloser
	// ended are the lines that report the end of a command.
	ended <-chan string
	// in is its directory.
	in string
	// number is the number of commands so far.
	number int
}

// begin starts a process.
func (r *Reader) begin(c *exec.Cmd) error {
	if r.Start == nil {
		return c.Start()
	}
	return r.Start(c)
}

// open starts a shell in the reader's directory. Its commands' input is empty. It reports
// their ends on file descriptor 3.
func (r *Reader) open(scratch string) (*shell, error) {
	ends, endWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &shell{reader: r, scratch: scratch, in: r.Dir, process: exec.Command("bash", "--noprofile", "--norc", "-s")}
	s.process.Dir, s.process.Env, s.process.ExtraFiles = r.Dir, r.Env, []*os.File{endWriter}
	// The shell has its own process group, to end its background processes with it.
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if s.commands, err = s.process.StdinPipe(); err == nil {
		err = r.begin(s.process)
	}
	endWriter.Close()
	if err != nil {
		ends.Close()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer ends.Close()
		for in := bufio.NewScanner(ends); in.Scan(); {
			lines <- in.Text()
		}
	}()
	s.ended = lines
	_, err = io.WriteString(s.commands, "set -euo pipefail\n")
	return s, err
}

// run runs one command and returns its output. A failing command ends the shell, unless
// fails is set.
func (s *shell) run(ctx context.Context, script string, fails bool) (string, error) {
	s.number++
	file := filepath.Join(s.scratch, fmt.Sprintf("command-%d", s.number))
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return "", err
	}
	// Background processes keep the output file open, but not file descriptor 3.
	call := fmt.Sprintf("source %q </dev/null >%q 2>&1 3>&-", file, file+".out")
	if fails {
		// A condition such as "if" would disable set -e.
		call = "set +e\n( set -e; " + call + " )\nFAILED=$?\nset -e\n[[ $FAILED != 0 ]]"
	}
	if _, err := fmt.Fprintf(s.commands, "%s\necho %s \"$PWD\" >&3\n", call, prompt); err != nil {
		return "", fmt.Errorf("the shell: %w", err)
	}
	line, open := "", false
	select {
	case line, open = <-s.ended:
	case <-ctx.Done():
	}
	out, err := os.ReadFile(file + ".out")
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil:
		return string(out), fmt.Errorf("the command does not end: %w", ctx.Err())
	case !open && fails:
		return string(out), errors.New("the command should fail, and succeeded")
	case !open:
		return string(out), errors.New("the command failed")
	}
	s.in = strings.TrimPrefix(line, prompt+" ")
	return string(out), nil
}

// close ends the shell and its background processes.
func (s *shell) close() {
	s.commands.Close()
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	_ = s.process.Wait() // Killed.
	for range s.ended {
	}
}

// staying is a command that runs until the page ends, outside of the shell.
type staying struct {
	process *exec.Cmd
	out     string
	exited  chan struct{}
}

// start starts a staying command in the shell's directory and waits until it prints what
// the page shows.
func (s *shell) start(ctx context.Context, b Block, script string) (*staying, error) {
	s.number++
	c := &staying{out: filepath.Join(s.scratch, fmt.Sprintf("command-%d.out", s.number)), exited: make(chan struct{})}
	out, err := os.Create(c.out)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.process = exec.Command("bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", script)
	c.process.Dir, c.process.Env, c.process.Stdout, c.process.Stderr = s.in, s.reader.Env, out, out
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.reader.begin(c.process); err != nil {
		return nil, err
	}
	go func() {
		_ = c.process.Wait() // The output says more than the status.
		close(c.exited)
	}()
	tick := time.Tick(50 * time.Millisecond)
	for {
		missing := Shown(s.reader.replace(b.Shows), c.printed(), b.Figures)
		if missing == nil {
			return c, nil
		}
		select {
		case <-tick:
		case <-c.exited:
			return c, fmt.Errorf("the command ended: %w", missing)
		case <-ctx.Done():
			return c, missing
		}
	}
}

func (c *staying) printed() string {
	text, err := os.ReadFile(c.out)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// interrupt sends SIGINT, as Ctrl-C does, and waits for the end.
func (c *staying) interrupt(patience time.Duration) error {
	_ = syscall.Kill(-c.process.Process.Pid, syscall.SIGINT)
	select {
	case <-c.exited:
		return nil
	case <-time.After(patience):
		_ = syscall.Kill(-c.process.Process.Pid, syscall.SIGKILL)
		<-c.exited
		return fmt.Errorf("the command ran for %v after Ctrl-C", patience)
	}
}
