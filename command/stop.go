package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// How long the steps of stopping may take, in addition to --drain. hurry replaces
// stopInstances after the user's second signal.
const (
	closeTimeout  = 2 * time.Second
	stopInstances = 10 * time.Second
	hurry         = 2 * time.Second
)

// insistence returns a context that ends with the second SIGINT or SIGTERM from now on.
// The first one ends the command's context. The third one kills the process, as does any
// after release.
func insistence() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		for range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// stopContext returns a context that ends after limit, or less after the user's second
// signal.
func (s *runningProvider) stopContext(limit, less time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	stop := context.AfterFunc(s.insists, func() {
		select {
		case <-time.After(less):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// stop drains the requests and stops everything: no instance, cgroup or socket remains. It
// calls drained when no request is in flight any more and before it closes connections. It
// logs requests that it had to cut off. An error says what remains.
func (s *runningProvider) stop(drained func()) error {
	s.stopQueue()
	s.drain()
	drained()
	s.endRestore() // Requests that wait for a function are refused.
	s.closeConnections()
	s.stopRun()
	<-s.ran
	ctx, cancel := s.stopContext(stopInstances, hurry)
	defer cancel()
	return errors.Join(s.parts.Controller.Close(ctx), s.closeParts())
}

// stopQueue stops accepting and starting asynchronous requests, and finishes those that
// are being executed. The others stay in the queue.
func (s *runningProvider) stopQueue() {
	ctx, cancel := s.stopContext(s.flags.drain, 0)
	defer cancel()
	s.async.Close(ctx)
}

// drain finishes the requests in flight.
func (s *runningProvider) drain() {
	ctx, cancel := s.stopContext(s.flags.drain, 0)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		s.log.Warn().Err(err).Msg("requests in flight are cut off")
	}
}

// closeConnections closes the connections. It does not wait long for any: a request that
// is still on one has not arrived completely.
func (s *runningProvider) closeConnections() {
	ctx, cancel := s.stopContext(closeTimeout, 0)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Debug().Err(err).Msg("connections of slow clients are closed")
		s.http.Close()
	}
}

// closeParts closes what start has opened, even if start failed halfway.
func (s *runningProvider) closeParts() error {
	var err error
	if s.async != nil {
		s.stopQueue()
	}
	if s.parts.Close != nil {
		err = s.parts.Close()
	}
	if s.listener != nil && s.http == nil {
		s.listener.Close()
	}
	s.release()
	return err
}
