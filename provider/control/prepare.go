package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// revision is a deployment on its way to being served.
type revision struct {
	*provider.Function
	bundle, file string
	secrets      map[string]string
	values       string
	// alone: the leader has not found out its times, so this replica does.
	alone  bool
	policy batching.Policy
}

// retryMeasure is the pause after the n-th failed measurement: 1 s, 2 s, …, at
// most five minutes.
func retryMeasure(n int) time.Duration { return min(time.Second<<min(n-1, 10), 5*time.Minute) }

// prepare finds out the times of the revision's model and puts it in
// the place of the one that is served. What fails is tried again until ctx ends.
func (c *Controller) prepare(ctx context.Context, fn *function, r revision) {
	for n := 1; ; n++ {
		prepared, profile, err := c.profile(ctx, r)
		if errors.Is(err, errFollowing) {
			if r.alone = !c.follow(ctx, n); ctx.Err() != nil {
				return
			}
			continue
		}
		if err == nil {
			c.serve(fn, r, prepared, profile)
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause := retryMeasure(n)
		c.options.Logger.Error().Str("function", r.Name).Err(err).Dur("retry_ms", pause).Msg("measure model")
		c.fail(fn, r, fmt.Sprintf("the model could not be measured: %v", err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// fail keeps why a revision cannot be served.
func (c *Controller) fail(fn *function, r revision, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted == r.Function {
		c.refuse(fn, why)
	}
}

// refuse keeps why what is wanted cannot be served. The lock is held.
func (c *Controller) refuse(fn *function, why string) {
	fn.failed = why
	fn.tell(time.Now())
	if fn.profile == nil {
		c.dismiss(fn.Name, "its function cannot be served")
	}
	c.Wake()
}

// serve makes the revision the one that is served, or says why it cannot be.
func (c *Controller) serve(fn *function, r revision, prepared string, profile *profiler.Profile) {
	times := c.newCorrection(r.Function, profile)
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted != r.Function {
		return
	}
	if fn.times != nil && fn.times.Of() == times.Of() {
		times = fn.times // It has seen more.
	} else {
		fn.means = map[int]*mean{}
	}
	next := c.plan(r.Function, profile, times)
	if next.refuse != nil {
		c.options.Logger.Error().Str("function", r.Name).Err(next.refuse).Msg("the objective cannot be met")
		c.refuse(fn, next.refuse.Error())
		return
	}
	if !c.batchesAlike(fn.Function, r.Function) {
		fn.dispatcher.Reconfigure(r.policy, r.Inference.SLO)
		fn.tuned, _ = r.policy.(*tuned)
	}
	promised := c.promised(r.Function, profile)
	fingerprint := c.fingerprint(r, prepared)
	if fn.profile != nil && fn.prepared == prepared && fn.fingerprint == fingerprint && slices.Equal(fn.promised, promised) &&
		fn.Inference.Image == r.Inference.Image &&
		maps.Equal(fn.Deployment.EnvVars, r.Deployment.EnvVars) && maps.Equal(fn.secrets, r.secrets) && fn.values == r.values {
		fn.renew(r.Revision)
	}
	fn.Function, fn.bundle, fn.secrets, fn.values = r.Function, r.bundle, r.secrets, r.values
	fn.prepared, fn.profile, fn.promised, fn.fingerprint = prepared, profile, promised, fingerprint
	fn.times, fn.candidates, fn.slow, fn.lastResort = times, next.candidates, next.slow, next.lastResort
	fn.failed, fn.crash, fn.unplaced, fn.failures, fn.notBefore = "", "", "", 0, time.Time{}
	times.SetQuantile(quantile(r.Function))
	for _, in := range fn.instances {
		c.recognise(in)
		c.refit(in)
	}
	fn.tell(time.Now())
	c.claim(fn)
	c.Wake()
}

// renew makes the current revision's instances those of the next one, which
// would start the very same: a deployment that changes nothing, or only the
// objective, restarts nothing.
func (fn *function) renew(revision uint64) {
	for _, in := range fn.instances {
		if in.Revision == fn.Revision {
			in.Revision = revision
		}
	}
}

// ready prepares a model that need not be measured.
func (c *Controller) ready(ctx context.Context, file string) (prepared string, err error) {
	if err := take(ctx, c.preparing); err != nil {
		return "", err
	}
	defer give(c.preparing)
	return c.options.Models.Prepare(ctx, file)
}

// take takes the token, unless ctx ends first; give gives it back.
func take(ctx context.Context, token chan struct{}) error {
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func give(token chan struct{}) { <-token }
