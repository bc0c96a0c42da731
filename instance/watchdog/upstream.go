package watchdog

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
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

// UpstreamOptions say what to run and how.
type UpstreamOptions struct {
	// Family starts the program.
	Family  *Family
	Program Program
	Log     *LineLog
	// URL is where the program serves. If nil it is a free port of the
	// loopback interface, which the program is told as PORT.
	URL *url.URL
	// ReadyPath, if not empty, is asked before the program counts as ready.
	ReadyPath string
	// BufferBody reads a body of unknown length whole, so that the program gets
	// a Content-Length.
	BufferBody bool
	// Stdout and Stderr stand before the lines of these streams.
	Stdout, Stderr string
	// LogRequests writes a line for each request.
	LogRequests bool
	// TimeLimit is how long a request may take, 0 for no limit.
	TimeLimit func(*http.Request) time.Duration
}

// Upstream is the program, running. It is an http.Handler and safe for
// concurrent use.
type Upstream struct {
	UpstreamOptions
	member *Member
	pipes  *Pipes
	logged chan struct{}
	proxy  *httputil.ReverseProxy
}

// StartUpstream starts the program and returns once it serves. The error is an
// [ExitError] if it ended instead.
func StartUpstream(ctx context.Context, o UpstreamOptions) (*Upstream, error) {
	u := &Upstream{UpstreamOptions: o, logged: make(chan struct{})}
	if u.URL == nil {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		u.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", port)}
		env := u.Program.Env
		u.Program.Env = append(env[:len(env):len(env)], "PORT="+port, "port="+port)
	}
	u.proxy = u.newProxy()
	if err := u.launch(); err != nil {
		return nil, err
	}
	if err := u.await(ctx); err != nil {
		u.Stop(0)
		return nil, err
	}
	return u, nil
}

// Exited is closed when the program has ended.
func (u *Upstream) Exited() <-chan struct{} { return u.member.Exited() }

// Stop asks the program to leave, kills it if it has not after patience, and
// returns when it has ended and its last lines are in the log.
func (u *Upstream) Stop(patience time.Duration) {
	if patience > 0 {
		u.member.Signal(unix.SIGTERM)
		select {
		case <-u.Exited():
		case <-time.After(patience):
		}
	}
	u.member.Signal(unix.SIGKILL)
	<-u.Exited()
	u.pipes.EndOutput()
	<-u.logged
	u.pipes.Close()
}

// launch starts the process with its output going to the log.
func (u *Upstream) launch() error {
	p, err := OpenPipes(false)
	if err != nil {
		return err
	}
	u.member, err = u.Family.Start(u.Program, p.Theirs)
	p.CloseTheirs()
	// It reads the end of its standard input at once.
	_ = p.Stdin.Close()
	if err != nil {
		p.Close()
		return fmt.Errorf("start fprocess: %w", err)
	}
	u.pipes = p
	var outputs sync.WaitGroup
	outputs.Go(func() { u.Log.Copy(p.Stdout, u.Stdout) })
	outputs.Go(func() { u.Log.Copy(p.Stderr, u.Stderr) })
	go func() {
		outputs.Wait()
		close(u.logged)
	}()
	return nil
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
func (u *Upstream) await(ctx context.Context) error {
	const longestPause = 50 * time.Millisecond
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		if u.serves(ctx, client) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.Exited():
			return u.Exit()
		case <-time.After(pause):
		}
	}
}

// serves reports whether the program answers, and not another one that has its
// port.
func (u *Upstream) serves(ctx context.Context, client *http.Client) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", hostPort(u.URL))
	if err != nil {
		return false
	}
	_ = conn.Close()
	if user := u.Family.User(); user != 0 && !ownsPort(user, u.URL) {
		return false
	}
	if u.ReadyPath == "" {
		return true
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL.JoinPath(u.ReadyPath).String(), nil)
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

// Exit tells how the program ended. To be called once it has.
func (u *Upstream) Exit() *ExitError {
	failure, status := u.member.Failure(), u.member.Status()
	e := &ExitError{Code: status.ExitStatus(), text: "the function's process ended"}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	if failure != nil {
		e.text += ": " + failure.Error()
	}
	return e
}
