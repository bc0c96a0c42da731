package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/mutual"
)

// ReadyEnv is the environment variable that names the file descriptor on which
// an instance writes "ready\n" once it serves.
const ReadyEnv = "FAAS_INFER_READY_FD"

const (
	// drainTime is how long Serve waits for requests in flight: longer than the longest
	// objective, of 10 minutes. The one who stops an instance has a shorter limit.
	drainTime = 11 * time.Minute
	// leaveTime is how long Serve keeps idle connections for clients that do not close them.
	leaveTime = 2 * time.Second
	// headTime and maxHead bound the time and the bytes of a request's head.
	headTime = 10 * time.Second
	maxHead  = 64 << 10
	// stallTime is how long a client may take nothing of an answer.
	stallTime = 30 * time.Second
)

// Listen opens the address to serve at: unix:///path or tcp://host:port. It replaces
// the socket file of a killed instance, but not one at which a process still listens.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	u, err := url.Parse(address)
	var config net.ListenConfig
	switch {
	case err != nil: // The error below names the address instead.
	case u.Scheme == "tcp" && u.Host != "" && u.Path == "":
		return config.Listen(ctx, "tcp", u.Host)
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		l, err := config.Listen(ctx, "unix", u.Path)
		if errors.Is(err, syscall.EADDRINUSE) && abandoned(u.Path) {
			if err := os.Remove(u.Path); err != nil {
				return nil, err
			}
			return config.Listen(ctx, "unix", u.Path)
		}
		return l, err
	}
	return nil, fmt.Errorf("address %q is neither unix:///path nor tcp://host:port", address)
}

// abandoned reports whether no process listens at a socket file any more.
func abandoned(path string) bool {
	c, err := net.Dial("unix", path)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	c.Close()
	return false
}

// ErrBroken is wrapped by the cause of a context's end if the instance would only answer with
// errors.
var ErrBroken = errors.New("it can compute no more")

// errGPU ends an instance that cannot compute any more.
var errGPU = fmt.Errorf("the GPU's context has ended, so this instance ends: %w", ErrBroken)

// EndWithGPU calls end in the background with a cause that wraps [ErrBroken] once an engine's GPU has
// failed: then a method Failed of the engine sends why. An instance that went on would answer every
// request with an error, and under MPS keep the GPU from those that start.
func EndWithGPU(ctx context.Context, e io.Closer, end context.CancelCauseFunc) {
	f, ok := e.(interface{ Failed() <-chan error })
	if !ok || f.Failed() == nil {
		return
	}
	go func() {
		select {
		case <-ctx.Done():
		case err := <-f.Failed():
			end(fmt.Errorf("%w: %w", errGPU, err))
		}
	}()
}

// Serve answers requests at all the listeners until ctx ends. Then it still answers for up to
// leaveTime, until its clients have closed their connections, unless ctx's cause wraps
// [ErrBroken]. After that it waits up to drainTime for the requests in flight, and returns
// nil. It closes the listeners. It calls ready as soon as it answers requests. With an
// identity, which may be nil, those of TCP speak TLS, and handler must be a [mutual.Guard].
func Serve(ctx context.Context, handler http.Handler, listeners []net.Listener, identity *mutual.Identity, logger zerolog.Logger, ready func() error) error {
	// Idle connections have no limit: the provider keeps its own for the next batch, and a
	// batch sent on one that the instance closes would count as lost.
	kept := &connections{closed: make(chan struct{}, 1)}
	server := &http.Server{
		Handler: kept.leaving(ctx, handler), ReadHeaderTimeout: headTime, MaxHeaderBytes: maxHead,
		ConnContext: mutual.WithConn, ConnState: kept.note,
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		limited := duplex.LimitStalls(l, stallTime)
		if identity != nil && l.Addr().Network() == "tcp" {
			limited = identity.Listen(limited)
		}
		go func() { failed <- server.Serve(limited) }()
	}
	err := ready()
	running := len(listeners)
	if err == nil {
		select {
		case <-ctx.Done():
			logger.Info().Msg("finishing the requests in flight")
			if !errors.Is(context.Cause(ctx), ErrBroken) {
				kept.wait(leaveTime)
			}
		case err = <-failed:
			running--
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if shutdownErr := server.Shutdown(drain); shutdownErr != nil {
		err = errors.Join(err, fmt.Errorf("requests were still in flight after %v: %w", drainTime, shutdownErr), server.Close())
	}
	for range running {
		<-failed
	}
	return err
}

// connections counts the open connections of a server. A provider that learns that an instance
// leaves, as when its pod is evicted, closes its own. If the server closed an idle one first, a
// batch might be on its way over it, and nobody could say whether it was executed.
type connections struct {
	open   atomic.Int64
	closed chan struct{}
}

// note is for http.Server.ConnState.
func (c *connections) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
		select {
		case c.closed <- struct{}{}:
		default:
		}
	}
}

// leaving lets each answer after the end of ctx be its connection's last.
func (c *connections) leaving(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// wait returns when no connection is open, or after a time.
func (c *connections) wait(most time.Duration) {
	end := time.After(most)
	for c.open.Load() > 0 {
		select {
		case <-c.closed:
		case <-end:
			return
		}
	}
}

// AnnounceReady writes "ready\n" to the file descriptor that ReadyEnv names,
// if it names one, and closes it.
func AnnounceReady() error {
	value := os.Getenv(ReadyEnv)
	if value == "" {
		return nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 0 {
		return fmt.Errorf("%s=%q is not the number of a file descriptor", ReadyEnv, value)
	}
	file := os.NewFile(uintptr(fd), "ready")
	if _, err := file.WriteString("ready\n"); err != nil {
		return fmt.Errorf("%s=%s: %w", ReadyEnv, value, err)
	}
	return file.Close()
}
