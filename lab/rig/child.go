package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// Child is a process of faas-infer or faas-infer-lab.
type Child struct {
	*process.Child
	output strings.Builder
}

// FindProgram finds the faas-infer program: in this program's directory, otherwise in PATH.
func FindProgram() (string, error) {
	const name = "faas-infer"
	beside := filepath.Join(filepath.Dir(process.Self()), name)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no faas-infer in the directory of %s, nor in PATH: build it with `make build`", process.Self())
	}
	return found, nil
}

// Start runs faas-infer with arguments, or this program if the first argument is bench. The
// child gets SIGTERM when this process dies.
func (o Options) Start(arguments ...string) (*Child, error) {
	c := &Child{}
	program := o.Program
	if arguments[0] == "bench" {
		program = process.Self()
	}
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = &c.output, &c.output
	var err error
	if c.Child, err = process.Start(command, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("start %s: %w", arguments[0], err)
	}
	if o.Started == nil {
		return c, nil
	}
	if err := o.Started(c.Process.Pid); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Said returns what the process has written. Call it after the process has exited.
func (c *Child) Said() string { return c.output.String() }

// Stop sends SIGTERM, and kills the process if it has not exited after 20 s.
func (c *Child) Stop() {
	_ = c.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.Exited():
	case <-time.After(20 * time.Second):
		_ = c.Process.Kill()
		<-c.Exited()
	}
}

// Answers waits until url answers with 200.
func (c *Child) Answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		status, _, err := Get(ctx, http.DefaultClient, url)
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-c.Exited():
			return fmt.Errorf("%s exited: %v: %s", strings.Join(c.Args[1:], " "), c.ProcessState, c.output.String())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// AnswersOver waits until the instance is ready at its socket.
func (c *Child) AnswersOver(ctx context.Context, socket string) error {
	client := OverUnix(socket)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if status, _, err := Get(ctx, client, "http://instance/_/ready"); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-c.Exited():
			return fmt.Errorf("the instance exited: %v: %s", c.ProcessState, c.output.String())
		case <-ctx.Done():
			return fmt.Errorf("the instance does not answer: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Get requests a URL and reads the answer.
func Get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// OverUnix returns an HTTP client whose connections all go to one Unix socket.
func OverUnix(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
}
