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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/instance/engine"
)

// ExitError says that the function's program exited although it should serve.
type ExitError struct {
	// Code is the exit status for this process, as in a shell: the program's own status,
	// or 128 plus the number of the signal that killed it.
	Code int
	text string
}

// Error implements error.
func (e *ExitError) Error() string { return e.text }

// ExitCode returns Code.
func (e *ExitError) ExitCode() int { return e.Code }

// UpstreamOptions say what program to run and how.
type UpstreamOptions struct {
	// Family starts the program.
	Family  *Family
	Program Program
	Log     *LineLog
	// URL, ReadyPath, BufferBody and LogRequests are those of [Config].
	URL         *url.URL
	ReadyPath   string
	BufferBody  bool
	LogRequests bool
	// Stdout and Stderr are the prefixes of these streams' lines in the log.
	Stdout, Stderr string
	// TimeLimit returns the maximum time of a request, 0 for no limit.
	TimeLimit func(*http.Request) time.Duration
}

// Upstream is the running program of mode HTTP. It is an http.Handler and safe for
// concurrent use.
type Upstream struct {
	UpstreamOptions
	member *Member
	pipes  *Pipes
	logged chan struct{}
	proxy  *httputil.ReverseProxy
	// buffered is the number of bytes of bodies that wait in memory, with BufferBody.
	buffered atomic.Int64
	// deaf is closed when the program has listened no more for deafTime. watching: somebody waits for that.
	deaf     chan struct{}
	watching atomic.Bool
}

// deafTime is how long a program may close its port before it counts as lost. A program that restarts a part
// of itself may do so for a moment.
const deafTime = 2 * time.Second

// startUpstream starts the program and returns once it serves. The error is an [ExitError]
// if the program exits first.
func startUpstream(ctx context.Context, o UpstreamOptions) (*Upstream, error) {
	u := &Upstream{UpstreamOptions: o, logged: make(chan struct{}), deaf: make(chan struct{})}
	if u.URL == nil {
		free, err := engine.FreePort()
		if err != nil {
			return nil, err
		}
		port := strconv.Itoa(free)
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

// Exited is closed when the program has exited.
func (u *Upstream) Exited() <-chan struct{} { return u.member.Exited() }

// Stop sends SIGTERM and kills the program if it has not exited after patience. With a
// patience of 0 it kills the program at once. It returns when the program has exited and
// its last lines are in the log.
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

// launch starts the process and copies its output to the log.
func (u *Upstream) launch() error {
	p, err := openPipes(false)
	if err != nil {
		return err
	}
	u.member, err = u.Family.Start(u.Program, p.Theirs)
	p.CloseTheirs()
	// The program's standard input is empty.
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

// await returns once the program serves.
func (u *Upstream) await(ctx context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for n := 1; ; n++ {
		if u.serves(ctx, client) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-u.Exited():
			return u.Exit()
		case <-time.After(backoff.Pause(n, time.Millisecond, 50*time.Millisecond)):
		}
	}
}

// serves reports whether the program answers, rather than another one at its port.
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

// watchPort closes deaf unless the program listens again within deafTime.
func (u *Upstream) watchPort() {
	if !u.watching.CompareAndSwap(false, true) {
		return
	}
	for began := time.Now(); ; {
		conn, err := dial(context.Background(), "tcp", hostPort(u.URL))
		switch {
		case err == nil:
			_ = conn.Close()
			u.watching.Store(false)
			return
		case time.Since(began) >= deafTime:
			close(u.deaf)
			return
		}
		select {
		case <-u.Exited():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deafness is why the watchdog ends after deaf is closed.
func (u *Upstream) deafness() *ExitError {
	return &ExitError{Code: 1, text: fmt.Sprintf("the function's process runs, but has not listened at %s for %v", hostPort(u.URL), deafTime)}
}

// hostPort returns the address to dial for a URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Exit says how the program ended. Call it only after Exited is closed.
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
