package queue

import (
	"context"
	"slices"
	"sync"
)

// budget bounds the bytes of all messages that are held at once. It serves callers of
// take in the order in which they came. Otherwise small messages could keep a large one
// waiting for ever.
type budget struct {
	mu      sync.Mutex
	free    int64
	waiting []*claim
}

// claim is one caller of take that waits for n bytes. ok is closed when it has them.
type claim struct {
	n  int64
	ok chan struct{}
}

// take waits until n bytes are free and takes them.
func (b *budget) take(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case <-c.ok:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.serve()
		b.mu.Unlock()
		return ctx.Err()
	}
	b.mu.Unlock()
	// serve granted the claim at the same moment.
	b.give(n)
	return ctx.Err()
}

// give gives bytes back. A negative n takes bytes without waiting, even beyond the budget.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve grants waiting claims as far as the free bytes go. The caller holds b.mu.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.free >= b.waiting[0].n {
		b.free -= b.waiting[0].n
		close(b.waiting[0].ok)
		b.waiting = b.waiting[1:]
	}
}
