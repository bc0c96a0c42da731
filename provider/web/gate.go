package web

import (
	"sync"
	"sync/atomic"
)

// Gate counts requests in flight and can be closed: then it lets no more in,
// and tells when the last has left.
type Gate struct {
	inside atomic.Int64
	closed atomic.Bool
	// shut is closed with the gate, empty when the last has left then.
	shut, empty         chan struct{}
	shutOnce, emptyOnce sync.Once
}

// NewGate is an open gate.
func NewGate() *Gate { return &Gate{shut: make(chan struct{}), empty: make(chan struct{})} }

// Enter reports whether a request may go in; if so, Leave must follow.
func (g *Gate) Enter() bool {
	// Counted first: whoever sees the gate open is seen by Close.
	g.inside.Add(1)
	if g.closed.Load() {
		g.Leave()
		return false
	}
	return true
}

// Leave is the way out.
func (g *Gate) Leave() {
	// Looked at again once it is closed: before, others may have come after the last.
	if g.inside.Add(-1) == 0 && g.closed.Load() && g.inside.Load() == 0 {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
}

// Close lets nothing more in and returns a channel that is closed once all
// have left.
func (g *Gate) Close() <-chan struct{} {
	g.closed.Store(true)
	g.shutOnce.Do(func() { close(g.shut) })
	if g.inside.Load() == 0 {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
	return g.empty
}

// Inside is how many are inside.
func (g *Gate) Inside() int64 { return g.inside.Load() }

// Closed reports whether the gate is closed.
func (g *Gate) Closed() bool { return g.closed.Load() }

// Shut is closed when the gate closes.
func (g *Gate) Shut() <-chan struct{} { return g.shut }
