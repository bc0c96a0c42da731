package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// How long the parts of stopping may take, beside --drain; hurry is for
// instances once the user insists.
const (
	closeConnections = 2 * time.Second
	stopInstances    = 10 * time.Second
	hurry            = 2 * time.Second
)

// insistence returns a context that ends with the second SIGINT or SIGTERM from
// now on. The first one is the command's context's; from the third on they kill
// the process, as they do after release.
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

// patience is a context that ends after limit, or after less once the user
// insists.
func (s *runningProvider) patience(limit, less time.Duration) (context.Context, context.CancelFunc) {
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

// stop drains and leaves nothing behind: no instance, no cgroup, no socket. Once
// nothing is in flight any more, and before connections are closed, it calls
// drained. Requests that had to be cut off are logged; an error tells what remains.
func (s *runningProvider) stop(drained func()) error {
	s.stopQueue()
	s.drain()
	drained()
	s.endRestore() // Requests that wait for a function are refused.
	s.hangUp()
	s.stopRun()
	<-s.ran
	ctx, cancel := s.patience(stopInstances, hurry)
	defer cancel()
	return errors.Join(s.parts.Controller.Close(ctx), s.closeParts())
}

// stopQueue accepts and takes up no more asynchronous requests, and finishes those
// that are being executed; the others stay in the queue.
func (s *runningProvider) stopQueue() {
	ctx, cancel := s.patience(s.flags.drain, 0)
	defer cancel()
	s.async.Close(ctx)
}

// drain finishes what is in flight.
func (s *runningProvider) drain() {
	ctx, cancel := s.patience(s.flags.drain, 0)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		s.log.Warn().Err(err).Msg("requests are cut off")
	}
}

// hangUp closes the connections. None is waited for for long: requests that are
// still on one have not come in whole.
func (s *runningProvider) hangUp() {
	ctx, cancel := s.patience(closeConnections, 0)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Debug().Err(err).Msg("closing connections of slow clients")
		s.http.Close()
	}
}

// closeParts closes what start has opened.
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
