package watchdog

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ExitError tells that the function's program, which was to serve, ended.
type ExitError struct {
	// Code is what this process should exit with, as a shell has it: the
	// program's own status, or 128 and the signal that killed it.
	Code int
	text string
}

// Error is an error's.
func (e *ExitError) Error() string { return e.text }

// ExitCode is Code.
func (e *ExitError) ExitCode() int { return e.Code }

// upstream is the program that serves in mode HTTP.
type upstream struct {
	url    *url.URL
	member *member
	// kills is the number of processes that were killed for want of memory
	// before.
	kills  uint64
	pipes  *pipes
	logged chan struct{}
}

// startUpstream starts the program and waits until it serves.
func (s *Server) startUpstream(ctx context.Context) (*upstream, error) {
	u := &upstream{url: s.config.Upstream, logged: make(chan struct{}), kills: s.family.launcher.OutOfMemory()}
	env := s.env
	if u.url == nil {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		u.url = &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", port)}
		env = append(env[:len(env):len(env)], "PORT="+port, "port="+port)
	}
	if err := s.launch(u, env); err != nil {
		return nil, err
	}
	if err := s.await(ctx, u); err != nil {
		u.member.signal(unix.SIGKILL)
		<-u.member.exited
		u.finish()
		return nil, err
	}
	return u, nil
}

// launch starts the process with its output going to the log.
func (s *Server) launch(u *upstream, env []string) error {
	p, err := openPipes(false)
	if err != nil {
		return err
	}
	u.member, err = s.family.start(s.program, s.config.Process, &os.ProcAttr{Env: env, Files: p.theirs[:]})
	p.closeTheirs()
	// It reads the end of its standard input at once.
	_ = p.stdin.Close()
	if err != nil {
		p.close()
		return fmt.Errorf("start fprocess: %w", err)
	}
	u.pipes = p
	outputs := make(chan struct{})
	go func() {
		defer close(outputs)
		s.log.Copy(p.stdout, s.prefix("stdout: "))
	}()
	go func() {
		defer close(u.logged)
		s.log.Copy(p.stderr, s.prefix("stderr: "))
		<-outputs
	}()
	return nil
}

// finish waits for the last lines of a program that has ended.
func (u *upstream) finish() {
	deadline := time.Now().Add(leftoverTime)
	_ = u.pipes.stdout.SetReadDeadline(deadline)
	_ = u.pipes.stderr.SetReadDeadline(deadline)
	<-u.logged
	u.pipes.close()
}

// freePort finds a port of the loopback interface that nobody listens at.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// await returns once the program serves.
func (s *Server) await(ctx context.Context, u *upstream) error {
	const longestPause = 50 * time.Millisecond
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		if s.serves(ctx, client, u) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.member.exited:
			return s.exitError(u)
		case <-time.After(pause):
		}
	}
}

// serves reports whether the program answers, and not another one that has its
// port.
func (s *Server) serves(ctx context.Context, client *http.Client, u *upstream) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", hostPort(u.url))
	if err != nil {
		return false
	}
	_ = conn.Close()
	if user := s.family.launcher.User(); user != 0 && !ownsPort(user, u.url) {
		return false
	}
	if s.config.ReadyPath == "" {
		return true
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url.JoinPath(s.config.ReadyPath).String(), nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	_ = response.Body.Close()
	return response.StatusCode < http.StatusMultipleChoices
}

// hostPort is what to dial for a URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// exitError tells how the program ended.
func (s *Server) exitError(u *upstream) *ExitError {
	status := u.member.status
	e := &ExitError{Code: status.ExitStatus(), text: "the function's process ended: " + statusText(status)}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
		if status.Signal() == unix.SIGKILL && s.family.launcher.OutOfMemory() > u.kills {
			e.text = errOutOfMemory.Error()
		}
	}
	return e
}
