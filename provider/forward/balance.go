package forward

import (
	"container/list"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// peer is an instance as the forwarder sees it. All but the transport is under
// the forwarder's lock.
type peer struct {
	id        cluster.InstanceID
	transport *http.Transport
	// up is false once the instance takes nothing new; served is true once it
	// has answered a request.
	up, served bool
	inFlight   int
	// drained is closed when it is down and nothing is in flight.
	drained chan struct{}
}

// waiter is a request that found no instance.
type waiter struct {
	// got receives the peer, held for the request already, or why there is
	// none.
	got chan grant
	// place is where it waits, nil once it has been answered.
	place *list.Element
}

type grant struct {
	peer *peer
	err  error
}

// acquire holds an instance for one request: of those that are up and not among
// tried, the one with the least in flight. The first time it waits for one until
// deadline; once some have been tried, it returns nil if there is no other.
func (f *Forwarder) acquire(ctx context.Context, deadline time.Time, tried []*peer) (*peer, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, f.drop(metrics.Closed, ErrClosed)
	}
	p := f.pick(tried)
	if p != nil || len(tried) > 0 {
		f.mu.Unlock()
		return p, nil
	}
	w, err := f.queue()
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f.options.OnCold()
	return f.wait(ctx, w, deadline)
}

// pick takes the ready peer with the least in flight; among equals they take
// turns. The lock is held.
func (f *Forwarder) pick(tried []*peer) *peer {
	var best *peer
	for i := range f.ready {
		p := f.ready[(f.turn+i)%len(f.ready)]
		if (best == nil || p.inFlight < best.inFlight) && !slices.Contains(tried, p) {
			best = p
		}
	}
	if best != nil {
		f.turn++
		best.inFlight++
		f.inFlight++
	}
	return best
}

// queue lets a request wait, if it may. The lock is held.
func (f *Forwarder) queue() (*waiter, error) {
	if f.problem.refuse {
		return nil, f.drop(metrics.NoInstance, f.problem.error())
	}
	if f.options.QueueLimit > 0 && f.waiters.Len() >= f.options.QueueLimit {
		return nil, f.drop(metrics.QueueFull, ErrQueueFull)
	}
	f.cold++
	w := &waiter{got: make(chan grant, 1)}
	w.place = f.waiters.PushBack(w)
	return w, nil
}

// wait returns what becomes of a waiter.
func (f *Forwarder) wait(ctx context.Context, w *waiter, deadline time.Time) (*peer, error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case g := <-w.got:
		return g.peer, g.err
	case <-ctx.Done():
	case <-late.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.place == nil { // It was answered in the same instant.
		g := <-w.got
		return g.peer, g.err
	}
	f.waiters.Remove(w.place)
	w.place = nil
	if err := ctx.Err(); err != nil {
		return nil, f.drop(metrics.Canceled, err)
	}
	return nil, f.drop(metrics.NoInstance, f.problem.error())
}

// answer takes the waiter that has waited longest and ends its waiting. The lock
// is held, and somebody waits.
func (f *Forwarder) answer(g grant) {
	w := f.waiters.Remove(f.waiters.Front()).(*waiter)
	w.place = nil
	w.got <- g
}

// refuseAll answers everything that waits with an error. The lock is held.
func (f *Forwarder) refuseAll(reason metrics.Reason, err error) {
	for f.waiters.Len() > 0 {
		f.answer(grant{err: f.drop(reason, err)})
	}
}

// release ends what acquire began; served says that the instance has answered.
func (f *Forwarder) release(p *peer, served bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.inFlight--
	f.inFlight--
	p.served = p.served || served
	p.settle()
}

// settle closes the drain of an instance that is down and has nothing in
// flight. The lock is held.
func (p *peer) settle() {
	if !p.up && p.inFlight == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}

// down lets an instance take nothing new; false if it took nothing before. The
// lock is held.
func (f *Forwarder) down(p *peer) bool {
	if !p.up {
		return false
	}
	p.up = false
	f.ready = slices.DeleteFunc(f.ready, func(o *peer) bool { return o == p })
	return true
}

// lose gives up an instance that takes no connection: requests find another.
func (f *Forwarder) lose(p *peer, cause error) {
	f.mu.Lock()
	first := f.down(p)
	f.mu.Unlock()
	if first {
		go f.options.OnLost(p.id, cause)
	}
}
