package keeper

import (
	"context"
	"sync"
)

// Tasks runs a controller's background work. It is safe for concurrent use.
type Tasks struct {
	// ctx ends with End: from then on Begin does nothing. stops ends when the context
	// of Wait does: instances that are still stopping are then killed.
	ctx, stops   context.Context
	cancel, kill context.CancelFunc
	work         sync.WaitGroup
}

// NewTasks returns Tasks without work.
func NewTasks() *Tasks {
	t := &Tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.stops, t.kill = context.WithCancel(context.Background())
	return t
}

// Context returns a context that ends with End.
func (t *Tasks) Context() context.Context { return t.ctx }

// Stops returns a context for work that must finish after End. It ends when the context of
// Wait does.
func (t *Tasks) Stops() context.Context { return t.stops }

// Ended reports whether End was called.
func (t *Tasks) Ended() bool { return t.ctx.Err() != nil }

// Begin runs f in the background, unless End was called. Call both under the same lock.
func (t *Tasks) Begin(f func()) {
	if !t.Ended() {
		t.work.Go(f)
	}
}

// End makes Begin do nothing from now on.
func (t *Tasks) End() { t.cancel() }

// Wait returns when all background work is done. When ctx ends, the context of Stops ends,
// too.
func (t *Tasks) Wait(ctx context.Context) {
	defer context.AfterFunc(ctx, t.kill)()
	t.work.Wait()
	t.kill()
}
