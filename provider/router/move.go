package router

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// moveLook is the time between two checks whether a move can continue.
	moveLook = 50 * time.Millisecond
	// readyWait is how long a deployment waits for the first instance of a
	// function that becomes an ordinary one.
	readyWait = 10 * time.Second
	// leastStay is how long the former kind keeps a function after requests are passed
	// on: some requests have found the former target and not called it yet.
	// longestStay is the maximum, while it still has requests in flight.
	leastStay   = time.Second
	longestStay = time.Minute
)

// Deploy implements [provider.Controller]. If the kind changes, the former kind serves
// until the new one can, and then answers its requests before it goes. If the new kind
// fails at once, nothing changes.
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	defer c.changing.Lock(f.Name)()
	kind, at := c.place(ctx, f)
	d, err := c.deploy(ctx, f, kind)
	if err == nil {
		c.gather(f.Name, at)
	}
	return d, err
}

// deploy deploys a function in the part of a kind. Its lock is held.
func (c *Controller) deploy(ctx context.Context, f *provider.Function, kind cluster.Kind) (provider.Dispatcher, error) {
	fn := c.find(f.Name)
	if fn != nil && fn.kind != kind {
		return c.move(ctx, fn, f, kind)
	}
	d, err := c.part(kind).Deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	if fn == nil {
		fn = &function{kind: kind}
		// A provider that died while it moved the function may have left parts of
		// the other kind.
		if err := c.parts[other(kind)].Release(ctx, f.Name); err != nil {
			c.log.Error().Str("function", f.Name).Err(err).Msg("could not remove what is left of the function's other kind")
		}
	}
	next := &function{kind: kind, latest: f, target: fn.target, leaving: fn.leaving}
	if fn.target == nil || fn.target.Dispatcher != d {
		next.target = &target{Dispatcher: d}
	}
	fn = next
	c.put(f.Name, fn)
	return fn.target.dispatcher(), nil
}

// other returns the other kind.
func other(kind cluster.Kind) cluster.Kind {
	if kind == cluster.Process {
		return cluster.Model
	}
	return cluster.Process
}

func (c *Controller) put(name string, fn *function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions[name] = fn
}

// move deploys f in the part of a kind that differs from that of fn.
func (c *Controller) move(ctx context.Context, fn *function, f *provider.Function, kind cluster.Kind) (provider.Dispatcher, error) {
	fn, abandoned, err := c.arrived(ctx, fn, kind)
	if err != nil {
		return nil, err
	}
	// The function may still be leaving the kind to which it returns.
	there := fn.leaving != nil && !fn.leaving.stop()
	warm := c.warms(fn, f.Name, kind)
	with := *f
	with.Warm = warm
	d, err := c.part(kind).Deploy(ctx, &with)
	if err == nil && kind == cluster.Process {
		if err = c.await(ctx, f.Name); err != nil {
			there = true
		}
	}
	if err != nil {
		switch {
		case abandoned != nil: // It goes on to where it was on its way.
			c.put(f.Name, &function{kind: abandoned.kind, latest: abandoned.latest, target: abandoned.target,
				leaving: c.leave(f.Name, fn.kind, fn.target, abandoned.target, abandoned.leaving.way)})
		case there:
			c.put(f.Name, &function{kind: fn.kind, latest: fn.latest, target: fn.target, leaving: c.leave(f.Name, kind, fn.leavingTarget(), fn.target, way{to: fn.kind})})
		}
		return nil, err
	}
	if abandoned != nil { // No request has come there.
		if err := c.part(abandoned.kind).Release(ctx, f.Name); err != nil {
			c.log.Error().Str("function", f.Name).Err(err).Msg("could not remove all of a function from where it was to move")
		}
	}
	next := &target{Dispatcher: d}
	if kind != cluster.Process {
		next.before.Store(fn.target)
	}
	c.log.Info().Str("function", f.Name).Str("to", cmp.Or(string(kind), "model")).Msg("the function moves")
	c.put(f.Name, &function{kind: kind, latest: f, target: next, leaving: c.leave(f.Name, fn.kind, fn.target, next, way{kind, warm})})
	return next.dispatcher(), nil
}

// leavingTarget returns the function's target in the kind that it is leaving, an empty
// target if it is leaving none.
func (fn *function) leavingTarget() *target {
	if fn.leaving != nil {
		return fn.leaving.target
	}
	return &target{}
}

// await waits until an ordinary function can answer, at most readyWait. It returns an
// error if the function's instances exit.
func (c *Controller) await(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		ready, failure := c.parts[cluster.Process].able(name)
		switch {
		case ready:
			return nil
		case failure != "":
			return failed(failure)
		}
		select {
		case <-time.After(moveLook):
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-ctx.Done():
			if context.Cause(ctx) == context.DeadlineExceeded {
				return nil // It starts slowly; requests wait for it.
			}
			return ctx.Err()
		}
	}
}

// failed returns the error of a deployment whose instances exit.
func failed(why string) error {
	return web.Refuse(http.StatusBadRequest, "the function was not changed, because it does not start as an ordinary function: %s", why)
}

// leaving is the removal of a moved function from its former kind's controller.
type leaving struct {
	kind   cluster.Kind
	target *target
	way    way
	cancel context.CancelFunc
	// done is closed when it has ended. gone: the controller has then released the
	// function.
	done chan struct{}
	gone bool
	// settled says where it ends, once: it arrives, or is turned back before that.
	settled atomic.Int32
}

// The values of settled.
const (
	onItsWay int32 = iota
	hasArrived
	turnedBack
)

// turnBack ends the leaving of a function that has not arrived yet. Otherwise it returns false and changes nothing.
func (l *leaving) turnBack() bool {
	if !l.settled.CompareAndSwap(onItsWay, turnedBack) {
		return false
	}
	l.stop()
	return true
}

// stop ends the leaving and reports whether the function was already released.
func (l *leaving) stop() (gone bool) {
	l.cancel()
	<-l.done
	return l.gone
}

// leave removes a function from the controller of a kind in the background. As soon as
// the kind to which it goes can serve, it passes requests from one target to the next. When from
// has nothing in flight, it releases the function.
func (c *Controller) leave(name string, kind cluster.Kind, from, next *target, way way) *leaving {
	ctx, cancel := context.WithCancel(c.ctx)
	l := &leaving{kind: kind, target: from, way: way, cancel: cancel, done: make(chan struct{})}
	c.moves.Go(func() {
		defer close(l.done)
		defer cancel()
		for began := time.Now(); next.before.Load() != nil && !c.canServe(name, way, time.Since(began)); {
			if !backoff.Wait(ctx, moveLook) {
				return
			}
		}
		if !l.settled.CompareAndSwap(onItsWay, hasArrived) {
			return
		}
		next.before.Store(nil)
		from.next.Store(next)
		for began := time.Now(); time.Since(began) < leastStay || from.inFlight.Load() > 0 && time.Since(began) < longestStay; {
			if !backoff.Wait(ctx, moveLook) {
				return
			}
		}
		l.gone = true
		if err := c.part(kind).Release(ctx, name); err != nil {
			c.log.Error().Str("function", name).Err(err).Msg("could not remove all of a function from its former kind")
		}
		if isPool(way.to) {
			c.pools.Joined(name)
		}
	})
	return l
}
