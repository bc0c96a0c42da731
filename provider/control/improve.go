package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// making bounds the calls of [Improver.Improve] for a function. Such a call outlives the revision that
// began it: the next one may want the same, and then shares the work.
type making struct {
	// what is the result of [Improver.Wanted].
	what string
	ctx  context.Context
	end  context.CancelFunc
}

// improvement identifies what is made for a function beside the models of its bundle, "" for nothing.
func improvement(by Improver, f *provider.Function, bundle string) string {
	if by == nil {
		return ""
	}
	return by.Wanted(f, bundle)
}

// of returns the context for calls that make something.
func (m *making) of(ctx context.Context, what string) context.Context {
	if m.end == nil {
		m.what = what
		m.ctx, m.end = context.WithCancel(ctx)
	}
	return m.ctx
}

// keep ends the calls unless a deployment wants the same; what is "" if it wants nothing.
func (m *making) keep(what string) {
	if m.end != nil && what != m.what {
		m.end()
		*m = making{}
	}
}

const (
	// generatePause is the pause after the first failed attempt to make variants, and
	// generateLongest the longest one. An attempt may take minutes of CPU time. They hold for
	// layer profiles, too.
	generatePause   = time.Minute
	generateLongest = time.Hour
)

// improve has more models made and serves them beside those that serve already. It repeats failed
// attempts until ctx ends.
func (c *preparation) improve(ctx context.Context) {
	for n := 1; ; n++ {
		cutting := c.cutting
		err := c.improveOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.reportImproved(err); err != nil && cutting {
			c.refuseUncut(err)
		}
		if err == nil {
			return
		}
		retry := backoff.Pause(n, generatePause, generateLongest)
		c.fn.log.Error().Err(err).Dur("retry_ms", retry).Msg("make variants of the model")
		c.pairs.divide(ctx, c.fn, c.Function, c.models) // What failed before may work by now.
		if !backoff.Wait(ctx, retry) {
			return
		}
	}
}

// refuseUncut serves the whole model although it is not cut, or says why it cannot be served: that
// it is too slow was no reason as long as it might be cut.
func (c *preparation) refuseUncut(err error) {
	c.cutting = false
	c.serve(true)
	if latency.TooSlow(err) {
		c.fail(err.Error()) // It is cut, and too slow in every way.
	}
}

// improveOnce has more models made, and finds their times.
func (c *preparation) improveOnce(ctx context.Context) error {
	began := time.Now()
	if err := c.makeMore(ctx); err != nil {
		return err
	}
	c.cutting = false
	_, models, err := c.bundles.Models(ctx, c.Function)
	if err == nil && slices.Equal(models, c.models) {
		c.serve(true)
	}
	if err != nil || slices.Equal(models, c.models) {
		return err
	}
	if _, _, err := c.checks.check(ctx, c.Function, models); err != nil {
		return err
	}
	var fresh []*task
	c.all, fresh = tasksFor(models, c.all)
	c.models = models
	c.fn.log.Info().Dur("took_ms", time.Since(began)).Int("variants", len(models)).Msg("made variants of the model")
	c.serve(!slices.ContainsFunc(c.all, func(t *task) bool { return t.tries == 0 }))
	c.complete(ctx, fresh)
	return nil
}

// makeMore calls the improver. When ctx ends because of a later deployment, the call goes on until that
// makes no use of it.
func (c preparation) makeMore(ctx context.Context) error {
	done := make(chan error, 1)
	c.mu.Lock()
	if ctx.Err() == nil { // A deployment and a removal end ctx under the lock.
		lasting := c.fn.making.of(c.keeper.Context(), improvement(c.improver, c.Function, c.bundle))
		c.keeper.Begin(func() { done <- c.improver.Improve(lasting, c.Function) })
	}
	c.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tasksFor returns the tasks of a revision's models, and those among them that are new. Models that have
// a task already keep what is known of them.
func tasksFor(models []Model, known []*task) (all, fresh []*task) {
	for _, m := range models {
		same := slices.IndexFunc(known, func(t *task) bool { return t.Name == m.Name && t.File == m.File && t.Images == m.Images })
		if same < 0 {
			fresh = append(fresh, &task{Model: m})
			all = append(all, fresh[len(fresh)-1])
			continue
		}
		known[same].Model = m // Its accuracy may be known now.
		all = append(all, known[same])
	}
	return all, fresh
}

// reportImproved makes the reason why no more models could be made a part of the function's description, ""
// if they were.
func (c preparation) reportImproved(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fn.wanted != c.Function {
		return
	}
	c.fn.planning = false
	c.fn.tell(time.Now())
	switch {
	case err == nil:
		c.fn.unregistered = ""
	case len(c.all) == 0:
		c.refuse(c.fn, fmt.Sprintf("the model could not be cut: %v", err))
	case c.Inference.Partition != "":
		c.fn.unregistered = fmt.Sprintf("its models serve, but more could not be made of them: %v", err)
	default:
		c.fn.unregistered = fmt.Sprintf("its models serve, but no variants of them could be made: %v", err)
	}
}
