// Package engine holds the code shared by engines that run a model in a process beside
// the instance. A Line replaces a lost process by a new one. A Limit says how long a
// batch may take. StartChild starts a program that dies with the instance. A Record
// marks the directory of a prepared model. The package does not know what the process
// is: Python or a model server. Begin with [Line].
package engine

import (
	"context"
	"sync"
	"time"
)

// RestartPause is the pause after a failed start. Meanwhile Need returns the same error
// and tries no other start.
const RestartPause = time.Second

// Lost is the error of a batch whose process died, hung or did not start. The batch
// must not run again.
type Lost struct{ Why error }

// Error implements error.
func (l Lost) Error() string { return l.Why.Error() }

// Lost marks the error for package instance.
func (Lost) Lost() bool { return true }

// Unwrap returns why.
func (l Lost) Unwrap() error { return l.Why }

// Line is a succession of processes, at most one at a time. Only the holder of the turn
// may use the current one.
type Line[P any] struct {
	start  func(ctx context.Context) (*P, error)
	failed func(err error)
	// turn holds one element while a goroutine has the turn.
	turn    chan struct{}
	current *P
	// why is the error of the last start, until the time before which Need tries no
	// other.
	why   error
	until time.Time

	life    context.Context
	end     context.CancelFunc
	replace sync.WaitGroup
}

// NewLine returns a line without a process. start starts a process. The line calls
// failed with the error when a replacement cannot start. Close must follow.
func NewLine[P any](start func(ctx context.Context) (*P, error), failed func(err error)) *Line[P] {
	l := &Line[P]{start: start, failed: failed, turn: make(chan struct{}, 1)}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Life returns a context that ends with Close.
func (l *Line[P]) Life() context.Context { return l.life }

// Begin starts the first process. If that fails, it ends Life.
func (l *Line[P]) Begin(ctx context.Context) error {
	l.turn <- struct{}{}
	defer l.Give()
	p, err := l.start(ctx)
	if err != nil {
		l.end()
		return err
	}
	l.current = p
	return nil
}

// Take waits for the turn. Give must follow, unless Take returns ctx's error.
func (l *Line[P]) Take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Give returns the turn.
func (l *Line[P]) Give() { <-l.turn }

// With takes the turn, calls f with the current process, nil if there is none, and
// returns the turn.
func (l *Line[P]) With(f func(p *P)) {
	l.turn <- struct{}{}
	defer l.Give()
	f(l.current)
}

// Is reports whether p is the current process. The caller holds the turn.
func (l *Line[P]) Is(p *P) bool { return l.current == p }

// Need returns the current process and starts one if there is none. The error is a
// [Lost]. Within [RestartPause] of a failed start it is that start's error. The caller
// holds the turn.
func (l *Line[P]) Need(ctx context.Context) (*P, error) {
	if l.current != nil {
		return l.current, nil
	}
	if l.why != nil && time.Now().Before(l.until) {
		return nil, Lost{l.why}
	}
	p, err := l.start(ctx)
	if l.why = err; err != nil {
		l.until = time.Now().Add(RestartPause)
		l.failed(err)
		return nil, Lost{err}
	}
	l.current = p
	return p, nil
}

// Leave forgets the current process; the caller ends it. The caller holds the turn.
func (l *Line[P]) Leave() { l.current = nil }

// Renew starts a process in the background, once the turn is free and if there is none.
func (l *Line[P]) Renew() {
	l.Go(func() {
		if l.Take(l.life) != nil {
			return
		}
		defer l.Give()
		_, _ = l.Need(l.life) // The next caller of Need gets the error.
	})
}

// Go runs f in a goroutine, without the turn. f must return when Life ends: Close waits
// for it.
func (l *Line[P]) Go(f func()) { l.replace.Go(f) }

// Close ends Life, waits for the turn and ends the current process, if any, with end.
func (l *Line[P]) Close(end func(p *P) error) error {
	l.end()
	l.replace.Wait()
	l.turn <- struct{}{}
	defer l.Give()
	if l.current == nil {
		return nil
	}
	p := l.current
	l.current = nil
	return end(p)
}
