package bundles

import (
	"context"
	"errors"
	"sync"
)

// Jobs are the runs that make variants or plans of bundles' models. All callers that want the same of a
// directory share one run, whatever revision of a function they act for. It ends early when the
// last of them leaves, or when one wants something else of the directory. Runs take turns: times
// that are measured together are wrong. The zero value is ready.
type Jobs struct {
	mu sync.Mutex
	// running are the runs by the directory that they write. turn has one element while one works.
	running map[string]*job
	turn    chan struct{}
}

// job is one run.
type job struct {
	// key identifies what is made.
	key    string
	cancel context.CancelCauseFunc
	// waiting is the number of callers.
	waiting int
	// done is closed at the end, and err is the result then.
	done chan struct{}
	err  error
}

// ErrOvertaken ends a run of whose directory somebody wants something else.
var ErrOvertaken = errors.New("other variants are wanted there")

// Run returns the result of work, which makes what the key identifies in a directory, or of the
// run that already makes that. It returns ErrOvertaken if that run gave way to another one.
func (m *Jobs) Run(ctx context.Context, dir, key string, work func(ctx context.Context) error) error {
	m.mu.Lock()
	one := m.running[dir]
	if one != nil && one.key != key {
		m.end(dir, ErrOvertaken)
		one = nil
	}
	if one == nil {
		one = m.begin(ctx, dir, key, work)
	}
	one.waiting++
	m.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	one.waiting--
	last := one.waiting == 0
	if last && m.running[dir] == one {
		m.end(dir, ctx.Err())
	}
	m.mu.Unlock()
	if last {
		<-one.done // Its child process ends before this one does.
	}
	return ctx.Err()
}

// begin begins a run that does not end with ctx. The lock is held.
func (m *Jobs) begin(ctx context.Context, dir, key string, work func(ctx context.Context) error) *job {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	if m.running == nil {
		m.running, m.turn = map[string]*job{}, make(chan struct{}, 1)
	}
	one := &job{key: key, cancel: cancel, done: make(chan struct{})}
	m.running[dir] = one
	go func() {
		defer close(one.done)
		defer cancel(nil)
		err := m.inTurn(ctx, work)
		m.mu.Lock()
		defer m.mu.Unlock()
		if errors.Is(context.Cause(ctx), ErrOvertaken) {
			err = ErrOvertaken
		}
		if one.err = err; m.running[dir] == one {
			delete(m.running, dir)
		}
	}()
	return one
}

func (m *Jobs) inTurn(ctx context.Context, work func(ctx context.Context) error) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.turn }()
	return work(ctx)
}

// end ends the run for a directory, if there is one. The next run waits for its turn until this
// one has ended. The lock is held.
func (m *Jobs) end(dir string, why error) {
	if one := m.running[dir]; one != nil {
		one.cancel(why)
		delete(m.running, dir)
	}
}

// Idle calls f unless something is being made, and lets nothing begin meanwhile.
func (m *Jobs) Idle(f func()) {
	m.Exclude(func() {
		if len(m.running) == 0 {
			f()
		}
	})
}

// Drop ends the run for a directory because nothing is wanted there any more. Its callers look
// again what they want.
func (m *Jobs) Drop(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(dir, ErrOvertaken)
}

// Exclude calls f while no other call begins, ends or removes anything.
func (m *Jobs) Exclude(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}
