package command

import (
	"context"
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/shutdown"
)

// A provider beside others serves for leaveTime while its clients' connections end with their next
// answers. Then it closes those that are idle, and serves for settleTime what has arrived on them
// just before. Both are a part of --drain, and leaveTime at most a quarter of it.
const (
	leaveTime  = 3 * time.Second
	settleTime = 200 * time.Millisecond
)

// stop drains the requests and stops everything: no instance, cgroup or socket remains. It
// calls drained when no request is in flight any more and before it closes connections. It
// logs requests that it had to cut off. An error says what remains.
func (s *runningProvider) stop(drained func()) error {
	s.drain()
	drained()
	restored := shutdown.Background(s.endRestore) // A model that is being read cannot be interrupted.
	s.closeConnections()
	exported := shutdown.Background(s.closeTracer) // It takes less than the instances may.
	err := s.steps.Within("stopping the instances", stopInstances, hurry, func(ctx context.Context) error {
		select {
		case <-restored:
		case <-ctx.Done():
		}
		s.stopRun()
		<-s.ran
		return s.parts.Controller.Close(ctx)
	})
	<-exported
	return errors.Join(err, s.closeParts())
}

// drain finishes the requests in flight, those of clients and those of the queue, and
// closes the queue. /healthz answers 503 from its beginning. Clients go to other providers first,
// if there are some. Then the queue stops, so it keeps the requests that the provider refuses.
func (s *runningProvider) drain() {
	ctx, cancel := s.steps.Context(s.flags.drain, 0)
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
	for _, server := range s.servers {
		server.SetKeepAlivesEnabled(false)
	}
	backoff.Wait(ctx, settleTime)
}

// closeQueue gives the asynchronous requests that are still being executed back to the
// queue, and closes it. The others are in it already.
func (s *runningProvider) closeQueue() {
	if s.queueClosed {
		return
	}
	s.queueClosed = true
	err := s.steps.Within("closing the queue", giveBack, 0, func(context.Context) error {
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
	ctx, cancel := s.steps.Context(closeTimeout, 0)
	defer cancel()
	for _, server := range s.servers {
		if err := server.Shutdown(ctx); err != nil {
			s.log.Debug().Err(err).Msg("connections of slow clients are closed")
			server.Close()
		}
	}
}

// closeParts closes what start has opened, even if start failed halfway.
func (s *runningProvider) closeParts() error {
	var err error
	if s.async != nil {
		s.closeQueue()
	}
	s.closeTracer()
	if s.parts.Close != nil {
		err = s.steps.Within("closing the platform", closePlatform, hurry, func(context.Context) error { return s.parts.Close() })
	}
	if s.servers == nil {
		for _, d := range s.doors {
			d.listener.Close()
		}
	}
	s.release()
	return err
}
