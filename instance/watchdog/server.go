package watchdog

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/mutual"
)

// Server answers requests with the function's program. It is an http.Handler.
type Server struct {
	config  Config
	log     *LineLog
	family  *Family
	program Program

	inflight atomic.Int64
	stopping atomic.Bool
	stats    stats

	// identity is its certificate, nil for none; rules say who may ask for what then.
	identity *mutual.Identity
	rules    mutual.Rules

	// handler answers the function's requests. In mode HTTP it is upstream, nil before
	// Start.
	handler  http.Handler
	upstream *Upstream
}

// Options are a Server's configuration and its environment.
type Options struct {
	Config
	// Launcher starts the function's processes.
	Launcher Launcher
	Log      *LineLog
	// Environment is the function's environment as NAME=value.
	Environment []string
	// Identity makes listeners of TCP speak TLS, to the provider only; nil for plain HTTP. Open are
	// paths that everybody may GET nevertheless, in addition to the watchdog's own.
	Identity *mutual.Identity
	Open     []string
}

// The paths of the watchdog's own answers.
const (
	healthPath  = "/_/health"
	readyPath   = "/_/ready"
	metricsPath = "/_/metrics"
)

// New returns a Server. It can serve once Start has returned nil. Close ends it. A process
// can have only one Server and no other children.
func New(o Options) (*Server, error) {
	path, err := lookUp(o.Process[0], "", o.Environment)
	if err != nil {
		return nil, fmt.Errorf("fprocess: %w", err)
	}
	s := &Server{
		config: o.Config, log: o.Log, family: newFamily(o.Launcher),
		program: Program{Path: path, Argv: o.Process, Env: o.Environment}, identity: o.Identity,
		rules: mutual.Rules{Open: append([]string{healthPath, readyPath, metricsPath}, o.Open...), Callers: onlyProvider},
	}
	if o.Mode != HTTP {
		s.handler = &ForkingHandler{
			Family: s.family, Program: s.program, Log: o.Log, Hold: o.Mode == Classic,
			Headers: o.Headers, Combine: o.CombineOutput, Prefix: s.prefix("stderr: "),
			ContentType: o.ContentType, TimeLimit: s.timeLimit, Abandoned: abandonedTime,
		}
	}
	return s, nil
}

func onlyProvider(string) []string { return []string{mutual.ProviderName} }

// lookUp finds a program's file. A name with a slash is a path from dir, or from the working
// directory without one; any other name is looked up in the environment's PATH.
func lookUp(name, dir string, environment []string) (string, error) {
	from := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	if strings.Contains(name, "/") {
		return executable(from(name))
	}
	path, _ := Variables(environment)("PATH")
	for _, in := range filepath.SplitList(path) {
		if file, err := executable(from(filepath.Join(in, name))); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// executable returns the absolute path of a program's file. It fails if the file is not
// executable.
func executable(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s is not executable; run chmod +x on it in the bundle", name)
	}
	return path, nil
}

// Start starts the program in mode HTTP and returns once it serves. The error is an
// [ExitError] if the program exits first. In other modes Start does nothing.
func (s *Server) Start(ctx context.Context) (err error) {
	if s.config.Mode != HTTP {
		return nil
	}
	s.upstream, err = startUpstream(ctx, UpstreamOptions{
		Family: s.family, Program: s.program, Log: s.log, URL: s.config.Upstream,
		ReadyPath: s.config.ReadyPath, BufferBody: s.config.BufferBody,
		Stdout: s.prefix("stdout: "), Stderr: s.prefix("stderr: "),
		LogRequests: s.config.LogRequests, TimeLimit: s.timeLimit,
	})
	s.handler = s.upstream
	return err
}

// exited returns a channel that is closed when the program of mode HTTP has exited. It is
// nil in other modes.
func (s *Server) exited() <-chan struct{} {
	if s.upstream == nil {
		return nil
	}
	return s.upstream.Exited()
}

// deaf returns a channel that is closed when the program of mode HTTP listens no more. It is nil in other modes.
func (s *Server) deaf() <-chan struct{} {
	if s.upstream == nil {
		return nil
	}
	return s.upstream.deaf
}

// Close kills all the function's processes and returns when none is left.
func (s *Server) Close() {
	if s.upstream != nil {
		s.upstream.Stop(0)
	}
	s.family.Close()
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case healthPath:
		s.serveHealth(w)
		return
	case readyPath:
		s.serveReady(w, r)
		return
	case metricsPath:
		s.stats.write(w, s.inflight.Load())
		return
	}
	running := s.inflight.Add(1)
	defer s.inflight.Add(-1)
	if limit := s.config.MaxInflight; limit > 0 && running > int64(limit) {
		tooMany(w)
		return
	}
	began := time.Now()
	defer func() { s.stats.count(time.Since(began)) }()
	s.handler.ServeHTTP(w, r)
}

func tooMany(w http.ResponseWriter) { Refuse(w, "max_inflight requests are running") }

func (s *Server) serveHealth(w http.ResponseWriter) {
	if s.stopping.Load() {
		http.Error(w, ErrClosed.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "OK\n")
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	limit := s.config.MaxInflight
	switch {
	case limit > 0 && s.inflight.Load() >= int64(limit):
		tooMany(w)
	case s.upstream != nil && s.config.ReadyPath != "" && !s.stopping.Load():
		asked := r.Clone(r.Context())
		asked.URL.Path, asked.URL.RawPath = s.config.ReadyPath, ""
		s.upstream.ServeHTTP(w, asked)
	default:
		s.serveHealth(w)
	}
}

// timeLimit returns the maximum time of a request, 0 for no limit. It is exec_timeout, or
// the request's header X-Timeout if that is less. Without exec_timeout there is no limit.
func (s *Server) timeLimit(r *http.Request) time.Duration {
	limit := s.config.ExecTimeout
	asked, err := time.ParseDuration(r.Header.Get("X-Timeout"))
	if err == nil && asked > 0 && asked < limit {
		return asked
	}
	return limit
}

// prefix returns stream, the prefix of the program's lines, if prefix_logs is set.
func (s *Server) prefix(stream string) string {
	if s.config.PrefixLogs {
		return stream
	}
	return ""
}
