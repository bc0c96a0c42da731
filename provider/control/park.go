package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// park has an instance give back its CPU and GPU share in the background, if it still
// has nothing to do. From now on it gets no batches; until it has given its share
// back, it holds it. The lock is held.
func (c *Controller) park(in *instance) {
	fn := in.function
	since := c.stats(fn).Instances[in.ID]
	if !in.serves() || in.stays || in.before != nil || !fn.dispatcher.Park(in.ID) {
		return
	}
	in.away, in.idleSince = true, since
	c.keeper.Begin(func() {
		if !c.releaseFromPeers(in) {
			return
		}
		err := c.options.Backend.Park(c.keeper.Context(), in.ID)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			in.Parked = true
			c.options.Logger.Debug().Str("function", in.Function).Str("instance", string(in.ID)).Msg("parked an instance")
		} else {
			in.stays = true
			c.tellServes(in)
			c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Err(err).Msg("park an instance; it keeps its share")
			c.back(in)
		}
		c.Wake() // Requests may have come meanwhile.
	})
}

// unpark has a parked instance take up a share in the background, once those whose
// room it needs are gone, and then serve. Its room is taken from now on. If it cannot
// have the share, it is of no use. The lock is held.
func (c *Controller) unpark(in *instance, x scaling.Unpark) {
	if !in.Parked || in.retiring {
		return
	}
	was, config := in.Config, in.Config
	if config.CPU = x.Config.CPU; config != was && (in.times != in.function.times || len(c.table(in.function, config.Batch, config.CPU)) == 0) {
		config = was
	}
	in.Parked, in.Config, in.idleSince = false, config, time.Time{}
	before := c.those(x.After)
	ctx, abandon := context.WithCancel(c.keeper.Context())
	in.abandon = abandon
	c.keeper.Begin(func() {
		defer abandon()
		err := await(ctx, before)
		if err == nil {
			err = c.options.Backend.Resize(ctx, in.ID, config)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case in.retiring || in.State == cluster.Exited:
		case err != nil:
			c.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).Err(err).Msg("unpark an instance")
			c.retire(in, "it cannot take up its share again")
		default:
			in.config = config.String()
			if config != was {
				in.mixed = time.Now().Add(2 * in.exec)
			}
			c.fit(in)
			c.back(in)
			c.tellServes(in)
		}
		c.Wake()
	})
}

// back has an instance that was away serve again. The lock is held.
func (c *Controller) back(in *instance) {
	in.away = false
	if in.serves() {
		in.up(c.rules.Queue(in.function.Function))
	}
}
