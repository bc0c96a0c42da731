package control

import (
	"context"
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
// An instance that starts gets the quota as soon as it is ready. The lock is held.
func (c *Controller) resize(in *instance, r scaling.Resize) {
	fn, before, next := in.function, in.Config, in.Config
	next.CPU = r.Config.CPU
	if starts := in.State == cluster.Starting && !in.retiring; !starts && !in.serves() || in.before != nil || time.Now().Before(in.fixed) || in.times != fn.times || next == before || len(c.table(fn, next.Batch, next.CPU)) == 0 {
		return
	}
	in.Config, in.before, in.still = next, &before, in.table
	c.fit(in)
	c.keeper.Begin(func() {
		var err error
		if in.awaitReady(c.keeper.Context()) {
			err = c.options.Backend.Resize(c.keeper.Context(), in.ID, next)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		in.before, in.still = nil, nil
		if in.State == cluster.Exited {
			return
		}
		if err != nil {
			in.Config = before
			c.refit(in)
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

// loaded notes that the instance is ready, if that is new. The lock is held.
func (in *instance) loaded() {
	select {
	case <-in.ready:
	default:
		close(in.ready)
	}
}

// awaitReady returns when the instance has loaded, or false if it never will.
func (in *instance) awaitReady(ctx context.Context) bool {
	select {
	case <-in.ready:
		return true
	case <-in.gone:
	case <-ctx.Done():
	}
	return false
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
