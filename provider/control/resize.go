package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// resize gives an instance another CPU quota in the background, and then the times
// that it has with it. Until then it holds of its node what it has and what it is
// to have, whichever is more. The engine, which sees the new config from now on,
// plans with what the instance has if it could not be had, and asks again after a
// pause that gets longer each time. Only the quota changes: the engine plans with the
// largest batch that the objective allows, which may be smaller than the instance's own.
// The lock is held.
func (c *Controller) resize(in *instance, r scaling.Resize) {
	fn, before, next := in.function, in.Config, in.Config
	next.CPU = r.Config.CPU
	if !in.serves() || in.before != nil || time.Now().Before(in.fixed) || in.times != fn.times || next == before || len(c.table(fn, next.Batch, next.CPU)) == 0 {
		return
	}
	in.Config, in.before = next, &before
	c.keeper.Begin(func() {
		err := c.options.Backend.Resize(c.keeper.Context(), in.ID, next)
		c.mu.Lock()
		defer c.mu.Unlock()
		in.before = nil
		if err != nil {
			in.Config = before
			in.refused++
			in.fixed = time.Now().Add(retryMeasure(in.refused))
			c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Err(err).Msg("change an instance's CPU quota")
			return
		}
		c.options.Logger.Debug().Str("function", in.Function).Str("instance", string(in.ID)).Stringer("from", before).Stringer("to", next).Msg("changed an instance's CPU quota")
		in.refused, in.fixed = 0, time.Time{}
		in.config, in.mixed = in.Config.String(), time.Now().Add(2*in.exec)
		c.refit(in)
		c.tellServes(in)
		fn.recordRatios()
		c.Wake()
	})
}

// alike reports whether what an instance has executed up to now ran on the share
// that it has: not while that changes, and shortly after.
func (in *instance) alike(now time.Time) bool { return in.before == nil && now.After(in.mixed) }

// holds is what an instance takes of its node.
func (in *instance) holds() cluster.Resources {
	held := in.Holds()
	if in.before != nil {
		held.CPU = max(held.CPU, in.before.CPU)
	}
	return held
}
