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

// generation adds generated variants to a revision that is served, if its deployment says
// com.openfaas.infer.variants: auto.
type generation struct{ preparation }

// making bounds the calls of Options.Register for a function. Such a call outlives the
// revision that began it: the next one may want the same, and then shares the work.
type making struct {
	// what is the result of made.
	what string
	ctx  context.Context
	end  context.CancelFunc
}

// made identifies what Options.Register makes of a bundle for a deployment: variants depend on the
// bundle only, the ways to cut its models also on limits and objective.
func made(f *provider.Function, bundle string) string {
	in := &f.Inference
	if in.Auto || in.Partition == "" {
		return bundle
	}
	return fmt.Sprintf("%s for %v with batches of %d on %d instances with %d bytes", bundle, in.SLO, in.MaxBatch, in.PartitionInstances, in.Limits.Memory)
}

// of returns the context for calls that make something.
func (m *making) of(ctx context.Context, what string) context.Context {
	if m.end == nil {
		m.what = what
		m.ctx, m.end = context.WithCancel(ctx)
	}
	return m.ctx
}

// keep ends the calls unless a deployment wants the same.
func (m *making) keep(wanted bool, what string) {
	if m.end != nil && (!wanted || what != m.what) {
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

// run makes the variants and serves them beside the models that serve already. It repeats
// failed attempts until ctx ends.
func (c *generation) run(ctx context.Context) {
	for n := 1; ; n++ {
		cutting := c.cutting
		err := c.generate(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.report(err); err != nil && cutting {
			c.refuseUncut(err)
		}
		if err == nil {
			return
		}
		retry := backoff.Pause(n, generatePause, generateLongest)
		c.fn.log.Error().Err(err).Dur("retry_ms", retry).Msg("make variants of the model")
		c.divide(ctx) // What failed before may work by now.
		if !backoff.Wait(ctx, retry) {
			return
		}
	}
}

// refuseUncut serves the whole model although it is not cut, or says why it cannot be served: that
// it is too slow was no reason as long as it might be cut.
func (c *generation) refuseUncut(err error) {
	c.cutting = false
	c.serve(true)
	if latency.TooSlow(err) {
		c.fail(err.Error()) // It is cut, and too slow in every way.
	}
}

// generate makes the variants, and finds their times.
func (c *generation) generate(ctx context.Context) error {
	began := time.Now()
	if err := c.register(ctx); err != nil {
		return err
	}
	c.cutting = false
	_, models, err := c.options.Bundles.Models(ctx, c.Function)
	if err == nil && slices.Equal(models, c.models) {
		c.serve(true)
	}
	if err != nil || slices.Equal(models, c.models) {
		return err
	}
	if _, _, err := c.check(ctx, c.Function, models); err != nil {
		return err
	}
	fresh := c.adopt(models)
	c.fn.log.Info().Dur("took_ms", time.Since(began)).Int("variants", len(models)).Msg("made variants of the model")
	c.serve(!slices.ContainsFunc(c.all, func(t *task) bool { return t.tries == 0 }))
	c.complete(ctx, fresh)
	return nil
}

// register calls Options.Register. When ctx ends because of a later deployment, the call goes on
// until that makes no use of it.
func (c generation) register(ctx context.Context) error {
	done := make(chan error, 1)
	c.mu.Lock()
	if ctx.Err() == nil { // A deployment and a removal end ctx under the lock.
		lasting := c.fn.making.of(c.keeper.Context(), made(c.Function, c.bundle))
		c.keeper.Begin(func() { done <- c.options.Register(lasting, c.Function) })
	}
	c.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// adopt makes the models the revision's. Those that it had keep what is known of them. It
// returns the tasks of the others.
func (c *generation) adopt(models []Model) (fresh []*task) {
	var all []*task
	for _, m := range models {
		same := slices.IndexFunc(c.all, func(t *task) bool { return t.Name == m.Name && t.File == m.File && t.Images == m.Images })
		if same < 0 {
			fresh = append(fresh, &task{Model: m})
			all = append(all, fresh[len(fresh)-1])
			continue
		}
		c.all[same].Model = m // Its accuracy may be known now.
		all = append(all, c.all[same])
	}
	c.all, c.models = all, models
	return fresh
}

// report makes the reason why there are no generated variants a part of the function's
// description, "" if there are.
func (c generation) report(err error) {
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
