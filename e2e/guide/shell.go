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

// prompt begins the lines by which the shell tells that a command has ended.
const prompt = "guide:"

// shell is the reader's terminal: what a command sets, the next one finds.
type shell struct {
	reader   *Reader
	scratch  string
	process  *exec.Cmd
	commands io.WriteCloser
	// ended are the lines that tell of a command's end.
	ended <-chan string
	// in is its directory.
	in string
	// number is how many commands it was given.
	number int
}

// open starts one in the reader's directory. Its commands' input is empty, and its
// third file tells of their ends.
func (r *Reader) open(scratch string) (*shell, error) {
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &shell{reader: r, scratch: scratch, in: r.Dir, process: exec.Command("bash", "--noprofile", "--norc", "-s")}
	s.process.Dir, s.process.Env, s.process.ExtraFiles = r.Dir, r.Env, []*os.File{tell}
	// A group of its own, so that what commands leave in the background ends with it.
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if s.commands, err = s.process.StdinPipe(); err == nil {
		err = s.process.Start()
	}
	tell.Close()
	if err != nil {
		told.Close()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer told.Close()
		for in := bufio.NewScanner(told); in.Scan(); {
			lines <- in.Text()
		}
	}()
	s.ended = lines
	_, err = io.WriteString(s.commands, "set -euo pipefail\n")
	return s, err
}

// run has it do one command and returns what that printed. A command that fails ends
// the shell, unless it is to fail.
func (s *shell) run(ctx context.Context, script string, fails bool) (string, error) {
	s.number++
	file := filepath.Join(s.scratch, fmt.Sprintf("command-%d", s.number))
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return "", err
	}
	// Processes in the background keep the file of the output, not the way on
	// which ends are told.
	call := fmt.Sprintf("source %q </dev/null >%q 2>&1 3>&-", file, file+".out")
	if fails {
		// Not in a condition, where set -e would be without effect.
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
		return string(out), fmt.Errorf("it does not end: %w", ctx.Err())
	case !open && fails:
		return string(out), errors.New("it was to fail, and did not")
	case !open:
		return string(out), errors.New("it failed")
	}
	s.in = strings.TrimPrefix(line, prompt+" ")
	return string(out), nil
}

// close ends the shell and what it left in the background.
func (s *shell) close() {
	s.commands.Close()
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	_ = s.process.Wait() // Killed.
	for range s.ended {
	}
}

// staying is a command that goes on, in a terminal of its own.
type staying struct {
	process *exec.Cmd
	out     string
	exited  chan struct{}
}

// start starts one in the directory that the shell is in and waits until it prints
// what the page shows.
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
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.process.Wait() // Its output tells more.
		close(c.exited)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := Shown(s.reader.replace(b.Shows), c.printed(), b.Figures)
		if missing == nil {
			return c, nil
		}
		select {
		case <-tick.C:
		case <-c.exited:
			return c, fmt.Errorf("it ended, and %w", missing)
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

// interrupt is Ctrl-C; it waits for the end.
func (c *staying) interrupt(patience time.Duration) error {
	_ = syscall.Kill(-c.process.Process.Pid, syscall.SIGINT)
	select {
	case <-c.exited:
		return nil
	case <-time.After(patience):
		_ = syscall.Kill(-c.process.Process.Pid, syscall.SIGKILL)
		<-c.exited
		return fmt.Errorf("it went on for %v after Ctrl-C", patience)
	}
}
