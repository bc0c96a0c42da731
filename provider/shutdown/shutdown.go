// Package shutdown ends a program step by step, each step within a limit, and sooner once the user
// insists with a second signal. It does not know what the steps do. Begin reading at [Steps].
package shutdown

import (
	"context"
	"fmt"
	"time"
)

// Lag is how long a step that ignores its limit is waited for. After that it is left behind.
const Lag = time.Second

// Steps are the steps of a program's end.
type Steps struct {
	// Insists ends at the user's second signal: see [Insistence].
	Insists context.Context
}

// Background begins work beside the caller. The channel is closed at the work's end.
func Background(work func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	return done
}

// Context returns a context that ends after limit, or less after the user's second signal.
func (s Steps) Context(limit, less time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	stop := context.AfterFunc(s.Insists, func() {
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

// Within runs a step of stopping that may take limit, or less after the user's second
// signal. It returns no later than [Lag] after that.
func (s Steps) Within(what string, limit, less time.Duration, step func(ctx context.Context) error) error {
	ctx, cancel := s.Context(limit, less)
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
	case <-time.After(Lag):
		return fmt.Errorf("%s took too long and was cut off", what)
	}
}
