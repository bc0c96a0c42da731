package router

import (
	"context"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// moveLook is how often it is looked whether a move can go on.
	moveLook = 50 * time.Millisecond
	// readyWait is how long a deployment waits for the first instance of a
	// function that becomes an ordinary one.
	readyWait = 10 * time.Second
	// leastStay is how long what was before stays at least once requests are
	// passed on, for those that have looked it up and not asked it yet, and
	// longestStay at most, for those that it has.
	leastStay   = time.Second
	longestStay = time.Minute
)

// Deploy implements [provider.Controller]. Where the kind changes, what was
// before serves until the other kind can, and answers what it has before it
// goes. Where the other kind fails at once, nothing changes.
func (c *Controller) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	fn, kind := c.find(f.Name), Kind(f)
	if fn != nil && fn.kind != kind {
		return c.move(ctx, fn, f)
	}
	d, err := c.parts[kind].Deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	if fn == nil {
		fn = &function{kind: kind}
		// A provider that died while the function was on its way to another kind
		// may have left something of it.
		if err := c.parts[other(kind)].Release(ctx, f.Name); err != nil {
			c.log.Error().Str("function", f.Name).Err(err).Msg("what is left of the function's other kind")
		}
	}
	if fn.target == nil || fn.target.Dispatcher != d {
		fn = &function{kind: kind, target: &target{Dispatcher: d}, leaving: fn.leaving}
	}
	c.put(f.Name, fn)
	return fn.target.dispatcher(), nil
}

// other is the other kind.
func other(kind cluster.Kind) cluster.Kind {
	if kind == cluster.Model {
		return cluster.Process
	}
	return cluster.Model
}

func (c *Controller) put(name string, fn *function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions[name] = fn
}

// move deploys a function that is to be of the other kind than fn is.
func (c *Controller) move(ctx context.Context, fn *function, f *provider.Function) (provider.Dispatcher, error) {
	kind := Kind(f)
	// It may still be on its way out of the kind that it goes back to.
	there := fn.leaving != nil && !fn.leaving.stop()
	d, err := c.parts[kind].Deploy(ctx, f)
	if err == nil && kind == cluster.Process {
		if err = c.await(ctx, f.Name); err != nil {
			there = true
		}
	}
	if err != nil {
		if there {
			c.put(f.Name, &function{kind: fn.kind, target: fn.target, leaving: c.leave(f.Name, kind, fn.leavingTarget(), fn.target)})
		}
		return nil, err
	}
	next := &target{Dispatcher: d}
	if kind == cluster.Model {
		next.before.Store(fn.target)
	}
	c.log.Info().Str("function", f.Name).Str("kind", string(kind)).Msg("the function changes its kind")
	c.put(f.Name, &function{kind: kind, target: next, leaving: c.leave(f.Name, fn.kind, fn.target, next)})
	return next.dispatcher(), nil
}

// leavingTarget is the target that the function has in the kind that it leaves,
// or one of nothing.
func (fn *function) leavingTarget() *target {
	if fn.leaving != nil {
		return fn.leaving.target
	}
	return &target{}
}

// await waits until an ordinary function can answer. One whose instances do not
// live is an error.
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
				return nil // It is slow; what comes waits for it.
			}
			return ctx.Err()
		}
	}
}

// failed is a deployment whose instances do not live.
func failed(why string) error {
	return web.Refuse(http.StatusBadRequest, "the function stays what it was, because as an ordinary one it does not start: %s", why)
}

// leaving is a function's way out of one kind's controller.
type leaving struct {
	kind   cluster.Kind
	target *target
	cancel context.CancelFunc
	// done is closed when it has ended; gone tells then that the controller
	// does not have the function any more.
	done chan struct{}
	gone bool
}

// stop ends the leaving and reports whether it was too late.
func (l *leaving) stop() (gone bool) {
	l.cancel()
	<-l.done
	return l.gone
}

// leave takes a function out of the controller of a kind in the background:
// once the other kind can serve, requests that find from are passed on to next,
// and when from has nothing left the controller lets go.
func (c *Controller) leave(name string, kind cluster.Kind, from, next *target) *leaving {
	ctx, cancel := context.WithCancel(c.ctx)
	l := &leaving{kind: kind, target: from, cancel: cancel, done: make(chan struct{})}
	c.moves.Go(func() {
		defer close(l.done)
		defer cancel()
		for next.before.Load() != nil {
			if ready, _ := c.parts[cluster.Model].able(name); ready {
				next.before.Store(nil)
			} else if !pause(ctx) {
				return
			}
		}
		from.next.Store(next)
		for began := time.Now(); time.Since(began) < leastStay || from.inFlight.Load() > 0 && time.Since(began) < longestStay; {
			if !pause(ctx) {
				return
			}
		}
		l.gone = true
		if err := c.parts[kind].Release(ctx, name); err != nil {
			c.log.Error().Str("function", name).Err(err).Msg("a function that changed its kind is not quite gone from the other one")
		}
	})
	return l
}

// pause waits for the next look; false if ctx ends.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(moveLook):
		return true
	case <-ctx.Done():
		return false
	}
}
