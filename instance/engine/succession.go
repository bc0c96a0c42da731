// Package engine is what engines share that run a model in a process beside the
// instance. A Line starts one process after another, each in the place of one that was
// lost; a Limit says how long a batch may take in it; StartChild starts a program that
// dies with the instance; a Record marks the directory of a prepared model. What the
// process is, Python or a model server, is its engine's to know. Begin with Line.
package engine

import (
	"context"
	"sync"
	"time"
)

// RestartPause is the time after a process that could not be started within which whoever
// needs one is told why, and no other is tried.
const RestartPause = time.Second

// Lost says of a batch that its process was lost with it, or could not be had: it is
// not to be run again.
type Lost struct{ Why error }

// Error says why.
func (l Lost) Error() string { return l.Why.Error() }

// Lost marks it for package instance.
func (Lost) Lost() bool { return true }

// Unwrap returns why.
func (l Lost) Unwrap() error { return l.Why }

// Line is the processes, of which there is one at a time or none. Who has the turn may
// use the one that there is.
type Line[P any] struct {
	start  func(ctx context.Context) (*P, error)
	failed func(err error)
	// turn is held by the one that uses current.
	turn    chan struct{}
	current *P
	// why a process could not be started, and until when that is not tried again.
	why   error
	until time.Time

	life    context.Context
	end     context.CancelFunc
	replace sync.WaitGroup
}

// NewLine has no process yet. start starts one; failed is told why one that was to replace
// another could not be started. Close must follow.
func NewLine[P any](start func(ctx context.Context) (*P, error), failed func(err error)) *Line[P] {
	l := &Line[P]{start: start, failed: failed, turn: make(chan struct{}, 1)}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Life ends with Close.
func (l *Line[P]) Life() context.Context { return l.life }

// Begin starts the first process. If it cannot be started, the line is closed.
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

// Take waits for the turn; Give must follow, unless there is an error, which is ctx's.
func (l *Line[P]) Take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Give gives the turn back.
func (l *Line[P]) Give() { <-l.turn }

// With calls f with the process, nil if there is none, in a turn of its own.
func (l *Line[P]) With(f func(p *P)) {
	l.turn <- struct{}{}
	defer l.Give()
	f(l.current)
}

// Is reports whether p is the process that there is. The turn is held.
func (l *Line[P]) Is(p *P) bool { return l.current == p }

// Need is the process, which is started if there is none. The error is a [Lost]; less
// than [RestartPause] after one, it is the same. The turn is held.
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

// Leave forgets the process, which is the caller's to end. The turn is held.
func (l *Line[P]) Leave() { l.current = nil }

// Renew starts the next process, if there is none, as soon as the turn is to be had.
func (l *Line[P]) Renew() {
	l.Go(func() {
		if l.Take(l.life) != nil {
			return
		}
		defer l.Give()
		_, _ = l.Need(l.life) // Those who need the process are told.
	})
}

// Go runs what ends when Life does, beside what has the turn; Close waits for it.
func (l *Line[P]) Go(f func()) { l.replace.Go(f) }

// Close has the process, if there is one, ended by end, after whoever has the turn.
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
