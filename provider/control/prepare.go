package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// revision is a deployment that is being prepared.
type revision struct {
	*provider.Function
	bundle, file string
	secrets      map[string]string
	values       string
	// alone: the leader has not found its times, so this replica does.
	alone  bool
	policy batching.Policy
}

// pause returns how long to wait after the n-th failure in a row to measure a model or to
// change a quota: 1 s, 2 s, 4 s, …, at most five minutes.
func pause(n int) time.Duration { return keeper.Backoff(n, time.Second, 5*time.Minute) }

const (
	// A replica that follows looks every followPause whether the leader has found a
	// model's times. After followTimeout it finds them itself.
	followPause   = time.Second
	followTimeout = 2 * time.Minute
)

// prepare finds the times of the revision's model and makes the revision the served one. A
// new model is served with a provisional profile first, then with a full one. prepare
// repeats a failed attempt until ctx ends.
func (c *Controller) prepare(ctx context.Context, fn *function, r revision) {
	provisional := false
	for n := 1; ; n++ {
		prepared, profile, err := c.find(ctx, r, provisional)
		if errors.Is(err, latency.ErrFollowing) {
			if !wait(ctx, followPause) {
				return
			}
			r.alone = time.Duration(n)*followPause >= followTimeout
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
		retry := pause(n)
		fn.log.Error().Err(err).Dur("retry_ms", retry).Msg("measure model")
		if !provisional { // The provisional profile keeps serving.
			c.fail(fn, r, fmt.Sprintf("the model could not be measured: %v", err))
		}
		if !wait(ctx, retry) {
			return
		}
	}
}

// wait waits for d; it returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// find finds the revision's profile, or the full one if the present one is provisional.
func (c *Controller) find(ctx context.Context, r revision, provisional bool) (prepared string, p *profiler.Profile, err error) {
	if provisional {
		return c.finder.Refine(ctx, r.Function, r.file)
	}
	return c.finder.Profile(ctx, r.Function, r.file, r.alone)
}

// fail records why a revision cannot be served, unless a later one is wanted.
func (c *Controller) fail(fn *function, r revision, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted == r.Function {
		c.refuse(fn, why)
	}
}

// refuse records why the wanted revision cannot be served. The lock is held.
func (c *Controller) refuse(fn *function, why string) {
	fn.failed = why
	fn.tell(time.Now())
	if !fn.measured() {
		c.keeper.Dismiss(fn.Name, "its function cannot be served")
	}
	c.Wake()
}

// serve makes the revision the served one, or records why it cannot be.
func (c *Controller) serve(fn *function, r revision, prepared string, profile *profiler.Profile) {
	profile = c.refined(fn, r, profile)
	a := &artefact{
		Artefact: cluster.Artefact{Name: cluster.Whole, Bundle: r.bundle, Model: prepared, Images: r.Inference.Image},
		profile:  profile, times: c.saver.records.Correction(r.Name, profile, latency.Quantile(r.Function)), means: latency.Means{},
		promised: c.rules.Promised(r.Function, profile),
	}
	a.named(a.promised)
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted != r.Function {
		return
	}
	before := fn.artefact(a.Name)
	if before != nil && before.times.Of() == a.times.Of() { // The present corrections are newer than the stored ones.
		a.times, a.means, a.corrected, a.fresh, a.unsaved = before.times, before.means, before.corrected, before.fresh, before.unsaved
	}
	a.plan = c.rules.Plan(r.Function, profile, a.times)
	a.candidates = a.named(a.plan.Candidates)
	if why := a.plan.Refuse; why != nil {
		fn.log.Error().Err(why).Msg("the objective cannot be met")
		c.refuse(fn, why.Error())
		return
	}
	if !c.rules.BatchesAlike(fn.Function, r.Function) {
		fn.dispatcher.Reconfigure(r.policy, r.Inference.SLO, r.Inference.Once)
		fn.tuned, _ = r.policy.(*tuned)
	}
	fingerprint := "" // A provider alone recognises its instances by their revision.
	if !fn.replica.Alone() {
		fingerprint = fingerprintOf(r.Deployment, r.bundle, prepared, r.values, c.options.Engine)
	}
	switch {
	case before == nil:
	case before.Model == prepared && before.Images == a.Images && fn.fingerprint == fingerprint && slices.Equal(before.promised, a.promised) &&
		maps.Equal(fn.Deployment.EnvVars, r.Deployment.EnvVars) && maps.Equal(fn.secrets, r.secrets) && fn.values == r.values:
		// A deployment that changes nothing, or only the objective, restarts no instance.
		fn.relabel(r.Revision)
	case fn.Revision == r.Revision && before.Model != prepared:
		// The instances have loaded the unprepared model; new ones load the prepared one.
		fn.relabel(0)
	}
	fn.Function, fn.secrets, fn.values, fn.fingerprint = r.Function, r.secrets, r.values, fingerprint
	fn.artefacts = []*artefact{a}
	fn.failed, fn.Unplaced, fn.Failures = "", "", keeper.Failures{}
	fn.Metrics.SetProvisional(profile.Provisional)
	a.times.SetQuantile(latency.Quantile(r.Function))
	for _, in := range fn.Instances {
		in.recognise()
		if in.Revision == fn.Revision && len(a.table(in.Config.Batch, in.Config.CPU)) > 0 {
			in.times = a.times
		}
		in.refit()
	}
	fn.tell(time.Now())
	c.claim(fn)
	c.Wake()
}

// refined returns the full profile that replaces a provisional one. If the running instances
// have more memory than it needs, it keeps the provisional profile's memory: then they have
// the same configs as new ones.
func (c *Controller) refined(fn *function, r revision, next *profiler.Profile) *profiler.Profile {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := fn.artefact(cluster.Whole)
	if a == nil || !a.profile.Provisional || next.Provisional || fn.Revision != r.Revision || next.Memory >= a.profile.Memory {
		return next
	}
	same := *next
	same.Memory = a.profile.Memory
	return &same
}

// relabel gives the instances of the current revision another revision number.
func (fn *function) relabel(revision uint64) {
	for _, in := range fn.Instances {
		if in.Revision == fn.Revision {
			in.Revision = revision
		}
	}
}
