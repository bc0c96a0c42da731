package web

import (
	"sync"
	"sync/atomic"
)

// Gate counts requests in flight. Once closed, it lets no more in and signals when the
// last has left.
type Gate struct {
	inside atomic.Int64
	closed atomic.Bool
	// shut is closed when the gate closes, empty when the last request has left after that.
	shut, empty         chan struct{}
	shutOnce, emptyOnce sync.Once
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{shut: make(chan struct{}), empty: make(chan struct{})} }

// Enter reports whether a request may go in; if so, Leave must follow.
func (g *Gate) Enter() bool {
	// Count first: then Close sees every request that sees the gate open.
	g.inside.Add(1)
	if g.closed.Load() {
		g.Leave()
		return false
	}
	return true
}

// Leave ends a request that has entered.
func (g *Gate) Leave() {
	// Read inside again after closed: before the gate closed, others may have entered.
	if g.inside.Add(-1) == 0 && g.closed.Load() && g.inside.Load() == 0 {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
}

// Close lets no more requests in. It returns a channel that is closed once all have left.
func (g *Gate) Close() <-chan struct{} {
	g.closed.Store(true)
	g.shutOnce.Do(func() { close(g.shut) })
	if g.inside.Load() == 0 {
		g.emptyOnce.Do(func() { close(g.empty) })
	}
	return g.empty
}

// Inside returns the number of requests in flight.
func (g *Gate) Inside() int64 { return g.inside.Load() }

// Closed reports whether the gate is closed.
func (g *Gate) Closed() bool { return g.closed.Load() }

// Shut returns a channel that is closed when the gate closes.
func (g *Gate) Shut() <-chan struct{} { return g.shut }
