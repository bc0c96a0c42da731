package keeper

import (
	"context"
	"sync"
)

// Tasks is what a controller does in the background. It is safe for concurrent use.
type Tasks struct {
	// ctx ends when the end begins: from then on nothing is begun. stops ends with
	// the patience of Wait: what is still stopping is then killed.
	ctx, stops   context.Context
	cancel, kill context.CancelFunc
	work         sync.WaitGroup
}

// NewTasks returns an empty one.
func NewTasks() *Tasks {
	t := &Tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.stops, t.kill = context.WithCancel(context.Background())
	return t
}

// Context ends with End.
func (t *Tasks) Context() context.Context { return t.ctx }

// Stops ends with the patience of Wait: it is for what has to be finished after End.
func (t *Tasks) Stops() context.Context { return t.stops }

// Ended reports whether End was called.
func (t *Tasks) Ended() bool { return t.ctx.Err() != nil }

// Begin runs f in the background, unless the end has begun. It is called under the
// lock under which End is.
func (t *Tasks) Begin(f func()) {
	if !t.Ended() {
		t.work.Go(f)
	}
}

// End lets nothing begin any more.
func (t *Tasks) End() { t.cancel() }

// Wait returns when everything that was begun is done. What is still stopping when
// ctx ends is killed.
func (t *Tasks) Wait(ctx context.Context) {
	defer context.AfterFunc(ctx, t.kill)()
	t.work.Wait()
	t.kill()
}
