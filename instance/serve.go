package instance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
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

// Serve answers requests at all the listeners until ctx ends. Then it waits up to
// drainTime for the requests in flight, and returns nil. It closes the listeners. It calls
// ready as soon as it answers requests. With an identity, which may be nil, those of TCP speak
// TLS, and handler must be a [mutual.Guard].
func Serve(ctx context.Context, handler http.Handler, listeners []net.Listener, identity *mutual.Identity, logger zerolog.Logger, ready func() error) error {
	// Idle connections have no limit: the provider keeps its own for the next batch, and a
	// batch sent on one that the instance closes would count as lost.
	server := &http.Server{Handler: handler, ErrorLog: nil, ReadHeaderTimeout: headTime, MaxHeaderBytes: maxHead, ConnContext: mutual.WithConn}
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
