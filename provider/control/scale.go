package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
)

// scale asks the engine what to do and does it.
func (c *Controller) scale(now time.Time) {
	nodes, err := c.options.Backend.Nodes(c.ctx)
	if err != nil {
		if c.ctx.Err() == nil {
			c.options.Logger.Error().Err(err).Msg("list nodes")
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	plan := c.options.Engine.Scale(now, c.load(now), c.unplaced(nodes))
	for _, s := range plan.Stop {
		if in, ok := c.instances[s.ID]; ok {
			c.retire(in, s.Why.String())
		}
	}
	for _, s := range plan.Start {
		if fn := c.functions[s.Function]; fn != nil && !now.Before(fn.notBefore) {
			c.start(fn, s)
		}
	}
	c.explain(plan)
	c.record(nodes)
}
