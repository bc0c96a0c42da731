package processes

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ provider.Controller = (*Controller)(nil)

// Deploy implements [provider.Controller]. It checks the bundle and the secrets
// before it changes anything. It keeps instances that the deployment would start in
// the same way; others serve until their replacements are ready. The dispatcher is a
// [provider.Forwarder].
func (c *Controller) Deploy(_ context.Context, f *provider.Function) (provider.Dispatcher, error) {
	r, err := c.revise(f)
	if err != nil {
		return nil, web.BadRequest(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper.Ended() {
		return nil, keeper.ErrClosed
	}
	now := time.Now()
	fn, ok := c.functions[f.Name]
	if ok {
		fn.change(now, r)
	} else {
		fn = c.newFunction(now, r)
		c.functions[f.Name] = fn
		c.claim(now, fn)
	}
	c.Wake()
	return fn.forwarder, nil
}

// Release is Remove for a function that another controller has taken over: it keeps
// the function's metrics.
func (c *Controller) Release(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return nil
	}
	delete(c.functions, name)
	for _, in := range fn.Instances {
		c.keeper.Retire(in, "removed")
	}
	fn.forwarder.Close()
	fn.Hide()
	return nil
}

// Restoring implements [provider.Controller].
func (c *Controller) Restoring(missing func(function string) bool) { c.keeper.Restoring(missing) }

// Scale implements [provider.Controller]. The number applies at once, until the load
// changes it; 0 retires all instances until the next request.
func (c *Controller) Scale(name string, replicas uint64) error {
	return c.Change(name, func(fn *function) { fn.replicas.Set(time.Now(), replicas, fn.load()) })
}
