package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// patience is how long a process may take to become ready, or to end after its work. The
// first use of CUDA compiles the kernel.
const patience = 2 * time.Minute

// child is a process that works on a share.
type child struct {
	*process.Child
	in     io.WriteCloser
	out    *bufio.Reader
	pipe   *os.File
	errors strings.Builder
}

// end kills the process and waits for its exit.
func (c *child) end() {
	_ = c.Process.Kill()
	<-c.Exited()
	_ = c.pipe.Close()
}

// run starts processes that work at the same time, each on its share, and returns their
// outcomes.
func (b *bench) run(ctx context.Context, jobs ...job) (outcomes []Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.Each+2*patience)
	defer cancel()
	var children []*child
	for _, j := range jobs {
		c, err := b.start(j)
		if err != nil {
			return nil, err
		}
		defer c.end()
		// Killing the process ends its output, and so the reads below.
		defer context.AfterFunc(ctx, func() { _ = c.Process.Kill() })()
		children = append(children, c)
	}
	for n, c := range children {
		line, err := c.out.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != ready {
			return nil, c.failed(jobs[n], err)
		}
	}
	if b.atReady != nil {
		if err := b.atReady(); err != nil {
			return nil, err
		}
	}
	for n, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return nil, c.failed(jobs[n], err)
		}
	}
	for n, c := range children {
		var o Outcome
		if err := json.NewDecoder(c.out).Decode(&o); err != nil {
			return nil, c.failed(jobs[n], err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, ctx.Err()
}

// start starts one process with its share.
func (b *bench) start(j job) (*child, error) {
	arguments := []string{"bench", "gpu-worker", "--each", j.Each.String()}
	if j.Model != "" {
		arguments = append(arguments, "--model", j.Model, "--batch", strconv.Itoa(j.Batch))
	}
	if j.Copies != "" {
		arguments = append(arguments, "--copies", j.Copies)
	}
	if j.Limit > 0 {
		arguments = append(arguments, "--limit", j.Limit.String())
	}
	if j.CPU {
		arguments = append(arguments, "--cpu")
	}
	c := &child{}
	command := exec.Command(b.Self, arguments...)
	command.Env, command.Stderr = b.card.Environment(j.percent), &c.errors
	var err error
	if c.in, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	// StdoutPipe would lose unread output when the process ends.
	var out *os.File
	if c.pipe, out, err = os.Pipe(); err != nil {
		return nil, err
	}
	defer out.Close()
	command.Stdout, c.out = out, bufio.NewReader(c.pipe)
	if c.Child, err = process.Start(command, syscall.SIGKILL); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", strings.Join(arguments, " "), err), c.pipe.Close())
	}
	return c, nil
}

// failed kills the process and returns an error with the last line of its standard error.
func (c *child) failed(j job, err error) error {
	_ = c.Process.Kill()
	<-c.Exited()
	lines := strings.Split(strings.TrimSpace(c.errors.String()), "\n")
	what := "multiply-adds"
	if j.Model != "" {
		what = "a model"
	}
	return errors.Join(fmt.Errorf("%s on %d %% of the GPU: %s", what, j.percent, lines[len(lines)-1]), err)
}
