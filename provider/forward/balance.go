package forward

import (
	"container/list"
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
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
	// up: it gets requests. served: it has answered a request. watched: its health is
	// being asked for. suspect: it is not up until it answers that.
	up, served, watched, suspect bool
	inFlight                     int
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

// acquire takes an instance for one request: the one with the fewest requests in
// flight that is up and not in tried. If there is none and tried is empty, it waits
// until deadline; otherwise it returns nil.
func (f *Forwarder) acquire(ctx context.Context, deadline time.Time, tried []*instance) (*instance, error) {
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
	if best != nil {
		f.turn++
		best.inFlight++
		f.inFlight++
	}
	return best
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
	w := &waiter{got: make(chan grant, 1)}
	w.place = f.waiters.PushBack(w)
	return w, nil
}

// wait waits until a waiter gets an instance or an error.
func (f *Forwarder) wait(ctx context.Context, w *waiter, deadline time.Time) (*instance, error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case g := <-w.got:
		return g.instance, g.err
	case <-ctx.Done():
	case <-late.C:
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
	return nil, f.drop(metrics.NoInstance, f.problem.Answer(ErrCold))
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

// release gives back an instance that acquire took. served: it has answered the
// request.
func (f *Forwarder) release(p *instance, served bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.inFlight--
	f.inFlight--
	p.served = p.served || served
	p.settle()
}

// settle ends the drain of an instance that is down and has nothing in flight. The
// lock is held.
func (p *instance) settle() {
	if !p.up && p.inFlight == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}

// down stops new requests to an instance; it returns false if it got none before. The
// lock is held.
func (f *Forwarder) down(p *instance) bool {
	if !p.up {
		return false
	}
	p.up = false
	f.ready = slices.DeleteFunc(f.ready, func(o *instance) bool { return o == p })
	return true
}

// raise sends requests to an instance, those that wait first. The lock is held.
func (f *Forwarder) raise(p *instance) {
	p.up = true
	f.ready = append(f.ready, p)
	for f.waiters.Len() > 0 {
		f.answer(grant{instance: f.pick(nil)})
	}
}

// lose gives up an instance that accepts no connection.
func (f *Forwarder) lose(p *instance, cause error) {
	f.mu.Lock()
	first := f.down(p)
	f.mu.Unlock()
	if first {
		go f.options.OnLost(p.id, cause)
	}
}
