package queue

import (
	"context"
	"math"
	"slices"
	"sync"
)

// budget divides the bytes that all messages in hand may take among the functions. A
// function that holds h bytes while f bytes are free may hold
//
//	a quarter of what the others leave, (f+h)/4;
//	a sixteenth, (f+h)/16, while another one waits;
//	half of f, if it holds nothing and its next message needs more than a quarter.
//
// So a function alone holds a quarter of the total M, as many bytes as keep it busy. If n
// functions have more messages than they may hold, each holds h = (f+h)/4, which is f/3.
// From n·h + f = M follows f = 3M/(n+3): of 256 MiB, 4 slow functions leave 110 MiB and 100
// of them 7.5 MiB to the others. If they come one after another, and none of the earlier
// ones gives anything back, each takes a quarter of the rest, which leaves M·(3/4)^n: 81 MiB
// after 4, 2.6 MiB after 16. No grant takes more than half of f. So after any grant, as many
// bytes are free as it took, and the smallest pull, 256 KiB, is granted to a 20th function.
//
// A function that holds nothing waits in line for its bytes. The others may hold less
// meanwhile, so they cannot keep a large message waiting for ever: n busy functions then
// leave 15M/(n+15), 64 MiB to 45 of them, and the largest message needs twice its 32 MiB.
// The line delays no small messages: a function that holds nothing gets the smallest pull
// out of turn. A function that holds something does not wait in line, because its own
// messages give bytes back.
type budget struct {
	mu   sync.Mutex
	free int64
	line []*claim
	// least is at most what each claim behind the first needs, so that bytes that serve none of
	// them do not make serve look at all. looks counts the claims that it has looked at.
	least int64
	looks int
}

// claim is a function in line. It takes at least need bytes, and at most want. ok is closed
// when it has got its grant.
type claim struct {
	need, want, grant int64
	ok                chan struct{}
}

// take takes at least need and at most want bytes for a function that holds held bytes. If
// the function may not have them, take returns 0 if it holds something, and waits
// otherwise.
func (b *budget) take(ctx context.Context, held, need, want int64) (grant int64, err error) {
	b.mu.Lock()
	if grant = b.allowed(held, need, want, len(b.line) > 0); grant > 0 || held > 0 {
		b.free -= grant
		b.mu.Unlock()
		return grant, nil
	}
	c := &claim{need: need, want: want, ok: make(chan struct{})}
	if len(b.line) <= 1 {
		b.least = need
	}
	b.line, b.least = append(b.line, c), min(b.least, need)
	b.mu.Unlock()
	select {
	case <-c.ok:
		return c.grant, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.line, c); i >= 0 {
		b.line = slices.Delete(b.line, i, i+1)
	}
	// serve may have granted the claim at the same moment.
	b.free += c.grant
	b.serve()
	return 0, ctx.Err()
}

// extend takes n bytes for a function that holds held bytes, if it may have them now.
func (b *budget) extend(held, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.allowed(held, n, n, len(b.line) > 0) < n {
		return false
	}
	b.free -= n
	return true
}

// allowed returns how many bytes a function may take now, 0 if fewer than need. waits says
// that another function waits before this one.
func (b *budget) allowed(held, need, want int64, waits bool) int64 {
	part := int64(4)
	if waits {
		part = 16
	}
	grant := min(want, (b.free+held)/part-held)
	switch {
	case grant >= need:
		return grant
	case held == 0 && need <= b.free/2 && (!waits || need <= minGrant):
		return need
	}
	return 0
}

// give gives bytes back. A negative n takes bytes without waiting, even beyond the budget.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve grants the claims in line that can be granted. The caller holds b.mu.
func (b *budget) serve() {
	least := int64(math.MaxInt64)
	for i := 0; i < len(b.line); {
		if i > 0 && b.allowed(0, b.least, b.least, true) == 0 {
			return
		}
		c := b.line[i]
		b.looks++
		if c.grant = b.allowed(0, c.need, c.want, i > 0); c.grant == 0 {
			if i++; i > 1 {
				least = min(least, c.need)
			}
			continue
		}
		b.free -= c.grant
		if i == 0 {
			b.line = b.line[1:]
		} else {
			b.line = slices.Delete(b.line, i, i+1)
		}
		close(c.ok)
	}
	b.least = least
}
