package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

// How long the steps of stopping may take, in addition to --drain. hurry replaces
// stopInstances and closePlatform after the user's second signal. A step that ignores its
// limit is left behind after lag: the process ends, and the next provider finds what this
// one has left.
const (
	giveBack      = 4 * time.Second
	closeTimeout  = 2 * time.Second
	stopInstances = 10 * time.Second
	closePlatform = 4 * time.Second
	lag           = time.Second
	hurry         = 2 * time.Second
)

// A provider beside others serves for leaveTime while its clients' connections end with their next
// answers. Then it closes those that are idle, and serves for settleTime what has arrived on them
// just before. Both are a part of --drain, and leaveTime at most a quarter of it.
const (
	leaveTime  = 3 * time.Second
	settleTime = 200 * time.Millisecond
)

// stopping is how much longer than --drain stopping takes at most: giving requests back to
// the queue, ending the gateway, closing connections, stopping instances and closing the
// platform. The pods' terminationGracePeriodSeconds must be long enough for both.
const stopping = giveBack + lag + gatewayPatience + closeTimeout + stopInstances + lag + closePlatform + lag

// insistence returns a context that ends with the second SIGINT or SIGTERM from now on.
// The first one ends the command's context. The third one kills the process, as does any
// after release. A SIGHUP counts as a first one only, see [Run]. Until release, SIGPIPE does not
// kill the process: a provider whose standard output is closed serves on, without its log.
func insistence() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, broken := make(chan os.Signal, 2), make(chan os.Signal, 1)
	caught := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		caught = append(caught, syscall.SIGHUP)
	}
	signal.Notify(signals, caught...)
	signal.Notify(broken, syscall.SIGPIPE) // Children get the default back, as they would not with signal.Ignore.
	go func() {
		defer signal.Stop(signals)
		for stops := false; ; {
			select {
			case s := <-signals:
				if stops && s != syscall.SIGHUP {
					cancel()
					return
				}
				stops = true
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(broken)
		cancel()
	}
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

// within runs a step of stopping that may take limit, or less after the user's second
// signal. It returns no later than lag after that.
func (s *runningProvider) within(what string, limit, less time.Duration, step func(ctx context.Context) error) error {
	ctx, cancel := s.stopContext(limit, less)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- step(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(lag):
		return fmt.Errorf("%s took too long and was cut off", what)
	}
}

// stop drains the requests and stops everything: no instance, cgroup or socket remains. It
// calls drained when no request is in flight any more and before it closes connections. It
// logs requests that it had to cut off. An error says what remains.
func (s *runningProvider) stop(drained func()) error {
	s.drain()
	drained()
	restored := make(chan struct{})
	go func() { // A model that is being read cannot be interrupted.
		defer close(restored)
		s.endRestore()
	}()
	s.closeConnections()
	err := s.within("stopping the instances", stopInstances, hurry, func(ctx context.Context) error {
		select {
		case <-restored:
		case <-ctx.Done():
		}
		s.stopRun()
		<-s.ran
		return s.parts.Controller.Close(ctx)
	})
	return errors.Join(err, s.closeParts())
}

// drain finishes the requests in flight, those of clients and those of the queue, and
// closes the queue. /healthz answers 503 from its beginning. Clients go to other providers first,
// if there are some. Then the queue stops, so it keeps the requests that the provider refuses.
func (s *runningProvider) drain() {
	ctx, cancel := s.stopContext(s.flags.drain, 0)
	defer cancel()
	s.leave(ctx)
	executed := s.async.Drain(ctx)
	if err := s.provider.Shutdown(ctx); err != nil {
		s.log.Warn().Err(err).Msg("requests in flight are cut off")
	}
	select {
	case <-executed:
	case <-ctx.Done():
	}
	s.closeQueue()
}

// leave lets clients go to other providers, if there are some, so that none of their requests is
// refused.
func (s *runningProvider) leave(ctx context.Context) {
	if !s.parts.Several {
		return
	}
	s.provider.Leave()
	backoff.Wait(ctx, min(leaveTime, s.flags.drain/4))
	s.http.SetKeepAlivesEnabled(false)
	backoff.Wait(ctx, settleTime)
}

// closeQueue gives the asynchronous requests that are still being executed back to the
// queue, and closes it. The others are in it already.
func (s *runningProvider) closeQueue() {
	if s.queueClosed {
		return
	}
	s.queueClosed = true
	err := s.within("closing the queue", giveBack, 0, func(context.Context) error {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		s.async.Close(now)
		return nil
	})
	if err != nil {
		s.log.Warn().Err(err).Msg("asynchronous requests in flight will be executed again")
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
		s.closeQueue()
	}
	if s.parts.Close != nil {
		err = s.within("closing the platform", closePlatform, hurry, func(context.Context) error { return s.parts.Close() })
	}
	if s.listener != nil && s.http == nil {
		s.listener.Close()
	}
	s.release()
	return err
}
