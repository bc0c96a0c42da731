package forward

import (
	"container/list"
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// instance is an instance as the forwarder sees it. The forwarder's lock guards all
// but the transport.
type instance struct {
	id               cluster.InstanceID
	network, address string
	transport        *http.Transport
	// revision is the number of the function's revision that it runs.
	revision atomic.Uint64
	// health says whether it may get requests. up: it gets them. served: it has answered one.
	health     health.Target
	up, served bool
	inFlight   int
	// drained is closed when it is down and has no request in flight.
	drained chan struct{}
}

// waiter is a request that found no instance.
type waiter struct {
	// got receives an instance, already counted for the request, or why there is
	// none.
	got chan grant
	// place is its element in the queue, nil once it has been answered.
	place *list.Element
}

type grant struct {
	instance *instance
	err      error
}

// acquire takes an instance for a request: the one with the fewest requests in flight that is up
// and not in tried. If there is none and tried is empty, the request is cold and waits until its
// deadline; otherwise acquire returns nil.
func (f *Forwarder) acquire(c *call, tried []*instance) (*instance, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, f.drop(metrics.Closed, ErrClosed)
	}
	c.freed = f.freed
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
	c.cold = true
	if c.trace != nil {
		c.trace.Cold = true
	}
	f.options.OnCold()
	p, err = f.wait(c.ctx, w, c.deadline)
	if p == nil && err == nil {
		return nil, f.drop(metrics.NoInstance, f.problem.Answer(ErrCold))
	}
	return p, err
}

// refusedPause is the longest time between two tries of a request that every instance refused: the
// requests that occupy them may be another replica's.
const refusedPause = time.Second

// acquireFreed takes an instance for a cold request that every instance has refused, as soon as
// one of them has answered another request, or a new one is up. It returns nil at the request's
// deadline.
func (f *Forwarder) acquireFreed(c *call) (*instance, error) {
	for now := time.Now(); now.Before(c.deadline); now = time.Now() {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return nil, f.drop(metrics.Closed, ErrClosed)
		}
		if f.freed != c.freed {
			c.freed = f.freed
			if p := f.pick(nil); p != nil {
				f.mu.Unlock()
				return p, nil
			}
		}
		w := f.enqueue()
		f.mu.Unlock()
		retry := now.Add(refusedPause)
		if c.deadline.Before(retry) {
			retry = c.deadline
		}
		if p, err := f.wait(c.ctx, w, retry); p != nil || err != nil {
			return p, err
		}
		c.freed-- // Try again in any case.
	}
	return nil, nil
}

// pick takes the ready instance with the fewest requests in flight; equals take
// turns. The lock is held.
func (f *Forwarder) pick(tried []*instance) *instance {
	var best *instance
	for i := range f.ready {
		p := f.ready[(f.turn+i)%len(f.ready)]
		if (best == nil || p.inFlight < best.inFlight) && !slices.Contains(tried, p) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	f.turn++
	p := f.grant(best).instance
	if p.health.State() == health.Probing {
		f.down(p) // One request shows whether it is well.
	}
	return p
}

// grant counts one more request on an instance. The lock is held.
func (f *Forwarder) grant(p *instance) grant {
	p.inFlight++
	f.inFlight++
	return grant{instance: p}
}

// queue adds a request to the queue, or returns why it may not wait. The lock is held.
func (f *Forwarder) queue() (*waiter, error) {
	if f.problem.Refuse {
		return nil, f.drop(metrics.NoInstance, f.problem.Answer(ErrCold))
	}
	if f.options.QueueLimit > 0 && f.waiters.Len() >= f.options.QueueLimit {
		return nil, f.drop(metrics.QueueFull, ErrQueueFull)
	}
	f.cold++
	return f.enqueue(), nil
}

func (f *Forwarder) enqueue() *waiter {
	w := &waiter{got: make(chan grant, 1)}
	w.place = f.waiters.PushBack(w)
	return w
}

// wait waits until a waiter gets an instance or an error. It returns nil at the deadline.
func (f *Forwarder) wait(ctx context.Context, w *waiter, deadline time.Time) (*instance, error) {
	late := time.After(time.Until(deadline))
	select {
	case g := <-w.got:
		return g.instance, g.err
	case <-ctx.Done():
	case <-late:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.place == nil { // It was answered at the same moment.
		g := <-w.got
		return g.instance, g.err
	}
	f.waiters.Remove(w.place)
	w.place = nil
	if err := ctx.Err(); err != nil {
		return nil, f.drop(metrics.Canceled, err)
	}
	return nil, nil
}

// answer gives g to the request that has waited longest. The lock is held, and the
// queue is not empty.
func (f *Forwarder) answer(g grant) {
	w := f.waiters.Remove(f.waiters.Front()).(*waiter)
	w.place = nil
	w.got <- g
}

// refuseAll answers all waiting requests with an error. The lock is held.
func (f *Forwarder) refuseAll(reason metrics.Reason, err error) {
	for f.waiters.Len() > 0 {
		f.answer(grant{err: f.drop(reason, err)})
	}
}

// release gives back an instance that acquire took. served: it has answered the request. refused:
// it did so because it has too many.
func (f *Forwarder) release(p *instance, served, refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.inFlight--
	f.inFlight--
	p.served = p.served || served
	if p.inFlight == 0 {
		p.health.Finished()
		f.resume(time.Now(), p)
	}
	p.settle()
	if refused {
		return
	}
	f.freed++
	if p.up && f.waiters.Len() > 0 {
		f.answer(f.grant(p))
	}
}

// settle ends the drain of an instance that is down and has nothing in flight. The
// lock is held.
func (p *instance) settle() {
	if !p.up && p.inFlight == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}

// down stops new requests to an instance. The lock is held.
func (f *Forwarder) down(p *instance) {
	if p.up {
		p.up = false
		f.ready = slices.DeleteFunc(f.ready, func(o *instance) bool { return o == p })
	}
}

// retire stops new requests to an instance for good; it returns false if that was so before. The
// lock is held.
func (f *Forwarder) retire(p *instance) bool {
	first := p.health.State() != health.Gone
	p.health.Retire()
	f.siblings.Forget(&p.health)
	f.down(p)
	f.spareNone(time.Now())
	return first
}

// raise sends requests to an instance, those that wait first. The lock is held.
func (f *Forwarder) raise(p *instance) {
	p.up = true
	f.freed++
	f.ready = append(f.ready, p)
	for f.waiters.Len() > 0 {
		next := f.pick(nil)
		if next == nil {
			return
		}
		f.answer(grant{instance: next})
	}
}

// lose gives up an instance that accepts no connection.
func (f *Forwarder) lose(p *instance, cause error) {
	f.mu.Lock()
	first := f.retire(p)
	f.mu.Unlock()
	if first {
		go f.options.OnLost(p.id, cause)
	}
}
