package pair

import (
	"context"
	"slices"
	"sync"
)

// turn is held while something is computed. Who waits for it gets it in this order: first what
// a shadow waits for, then the oldest batch.
type turn struct {
	mu      sync.Mutex
	held    bool
	waiting []*waiter
}

type waiter struct {
	feeds bool
	batch uint64
	given chan struct{}
}

// take waits for the turn. The error is ctx's; the turn is then not held.
func (t *turn) take(ctx context.Context, feeds bool, batch uint64) error {
	t.mu.Lock()
	if !t.held {
		t.held = true
		t.mu.Unlock()
		return nil
	}
	w := &waiter{feeds, batch, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, w); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	} else {
		t.pass() // It was given just now.
	}
	return ctx.Err()
}

// give ends what take began.
func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass hands the turn to the next. The caller holds mu.
func (t *turn) pass() {
	if t.held = len(t.waiting) > 0; !t.held {
		return
	}
	next := 0
	for i, w := range t.waiting {
		n := t.waiting[next]
		if w.feeds && !n.feeds || w.feeds == n.feeds && w.batch < n.batch {
			next = i
		}
	}
	close(t.waiting[next].given)
	t.waiting = slices.Delete(t.waiting, next, next+1)
}
