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
	"github.com/faas-infer/faas-infer/provider/latency"
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
// the place of the one that is served: first with a provisional profile, if it is new,
// then with a full one. What fails is tried again until ctx ends.
func (c *Controller) prepare(ctx context.Context, fn *function, r revision) {
	provisional := false
	for n := 1; ; n++ {
		prepared, profile, err := c.find(ctx, r, provisional)
		if errors.Is(err, latency.ErrFollowing) {
			if r.alone = !c.follow(ctx, n); ctx.Err() != nil {
				return
			}
			continue
		}
		if err == nil {
			c.serve(fn, r, prepared, profile)
			if provisional = profile.Provisional; !provisional {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause := retryMeasure(n)
		c.options.Logger.Error().Str("function", r.Name).Err(err).Dur("retry_ms", pause).Msg("measure model")
		if !provisional { // Else it serves as it is.
			c.fail(fn, r, fmt.Sprintf("the model could not be measured: %v", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// find finds the revision's profile, or the one that takes a provisional one's place.
func (c *Controller) find(ctx context.Context, r revision, provisional bool) (prepared string, p *profiler.Profile, err error) {
	if provisional {
		return c.finder.Refine(ctx, r.Function, r.file)
	}
	return c.finder.Profile(ctx, r.Function, r.file, r.alone)
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
	profile = c.refined(fn, r, profile)
	times := c.records().Correction(r.Name, profile, latency.Quantile(r.Function))
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted != r.Function {
		return
	}
	if fn.times != nil && fn.times.Of() == times.Of() {
		times = fn.times // It has seen more.
	} else {
		fn.means = latency.Means{}
	}
	next := c.rules.Plan(r.Function, profile, times)
	if next.Refuse != nil {
		c.options.Logger.Error().Str("function", r.Name).Err(next.Refuse).Msg("the objective cannot be met")
		c.refuse(fn, next.Refuse.Error())
		return
	}
	if !c.rules.BatchesAlike(fn.Function, r.Function) {
		fn.dispatcher.Reconfigure(r.policy, r.Inference.SLO)
		fn.tuned, _ = r.policy.(*tuned)
	}
	promised := c.rules.Promised(r.Function, profile)
	fingerprint := c.fingerprint(r, prepared)
	if fn.profile != nil && fn.prepared == prepared && fn.fingerprint == fingerprint && slices.Equal(fn.promised, promised) &&
		fn.Inference.Image == r.Inference.Image &&
		maps.Equal(fn.Deployment.EnvVars, r.Deployment.EnvVars) && maps.Equal(fn.secrets, r.secrets) && fn.values == r.values {
		fn.renew(r.Revision)
	}
	if fn.Revision == r.Revision && fn.prepared != "" && fn.prepared != prepared {
		fn.outdate()
	}
	fn.Function, fn.bundle, fn.secrets, fn.values = r.Function, r.bundle, r.secrets, r.values
	fn.prepared, fn.profile, fn.promised, fn.fingerprint = prepared, profile, promised, fingerprint
	fn.times, fn.plan, fn.candidates = times, next, next.Candidates
	fn.failed, fn.unplaced, fn.failures = "", "", failures{}
	fn.metrics.SetProvisional(profile.Provisional)
	times.SetQuantile(latency.Quantile(r.Function))
	for _, in := range fn.instances {
		c.recognise(in)
		if in.Revision == fn.Revision && len(c.table(fn, in.Config.Batch, in.Config.CPU)) > 0 {
			in.times = fn.times
		}
		c.refit(in)
	}
	fn.tell(time.Now())
	c.claim(fn)
	c.Wake()
}

// refined is a profile that takes a provisional one's place, with as much memory as the
// running instances have, if that is enough: they keep theirs, and are of the same configs.
func (c *Controller) refined(fn *function, r revision, next *profiler.Profile) *profiler.Profile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.profile == nil || !fn.profile.Provisional || next.Provisional || fn.Revision != r.Revision || next.Memory >= fn.profile.Memory {
		return next
	}
	same := *next
	same.Memory = fn.profile.Memory
	return &same
}

// outdate makes the current revision's instances older ones: they have loaded the model as
// it stands, and others will have it prepared.
func (fn *function) outdate() {
	for _, in := range fn.instances {
		if in.Revision == fn.Revision {
			in.Revision = 0
		}
	}
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
