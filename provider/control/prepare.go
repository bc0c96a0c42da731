package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
)

// revision is a deployment on its way to being served.
type revision struct {
	*provider.Function
	bundle, file string
	secrets      map[string]string
	values       string
	policy       batching.Policy
}

// retryMeasure is the pause after the n-th failed measurement: 1 s, 2 s, …, at
// most five minutes.
func retryMeasure(n int) time.Duration { return min(time.Second<<min(n-1, 10), 5*time.Minute) }

// prepare finds or measures the times of the revision's model and puts it in
// the place of the one that is served. What fails is tried again until ctx ends.
func (c *Controller) prepare(ctx context.Context, fn *function, r revision) {
	for n := 1; ; n++ {
		prepared, profile, err := c.profile(ctx, r)
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
	if fn.wanted != r.Function {
		return
	}
	fn.failed = why
	fn.tell(time.Now())
	if fn.profile == nil {
		c.dismiss(fn.Name, "its function cannot be served")
	}
	c.Wake()
}

// serve makes the revision the one that is served, or says why it cannot be.
func (c *Controller) serve(fn *function, r revision, prepared string, profile *profiler.Profile) {
	candidates := c.candidates(r.Function, profile)
	if why := c.hopeless(r.Function, candidates); why != nil {
		c.options.Logger.Error().Str("function", r.Name).Err(why).Msg("the objective cannot be met")
		c.fail(fn, r, why.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted != r.Function {
		return
	}
	if !c.batchesAlike(fn.Function, r.Function) {
		fn.dispatcher.Reconfigure(r.policy, r.Inference.SLO)
	}
	if fn.profile != nil && fn.prepared == prepared && slices.Equal(fn.candidates, candidates) &&
		maps.Equal(fn.Deployment.EnvVars, r.Deployment.EnvVars) && maps.Equal(fn.secrets, r.secrets) && fn.values == r.values {
		fn.renew(r.Revision)
	}
	fn.Function, fn.bundle, fn.secrets, fn.values = r.Function, r.bundle, r.secrets, r.values
	fn.prepared, fn.profile, fn.candidates = prepared, profile, candidates
	fn.failed, fn.crash, fn.unplaced, fn.failures, fn.notBefore = "", "", "", 0, time.Time{}
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

// key names the profile of a model's content for a function's batches. The
// largest batch is part of it because the profile's memory is that batch's.
func (c *Controller) key(hash string, f *provider.Function) string {
	return fmt.Sprintf("%s %s %s b≤%d", hash, c.options.Engine, c.options.Machine, f.Inference.MaxBatch)
}

// stored returns a measured profile, nil if there is none that is usable.
func (c *Controller) stored(key string) *profiler.Profile {
	p, err := c.options.Profiles.Profile(key)
	if err != nil || !p.Usable(c.options.Engine, c.options.Machine) {
		return nil // It is measured again.
	}
	return p
}

// covers reports whether the profile goes on to maxBatch or, on each number of
// threads, to a batch that takes longer than until.
func covers(p *profiler.Profile, maxBatch int, until time.Duration) bool {
	return !slices.ContainsFunc(last(p), func(m profiler.Measurement) bool {
		return m.Batch < maxBatch && m.Median <= float64(until.Microseconds())
	})
}

// last lists the measurement of the largest batch on each number of threads.
func last(p *profiler.Profile) []profiler.Measurement {
	var out []profiler.Measurement
	for _, threads := range p.Threads() {
		var largest profiler.Measurement
		for _, m := range p.Measurements {
			if m.Threads == threads && m.Batch > largest.Batch {
				largest = m
			}
		}
		out = append(out, largest)
	}
	return out
}

// profile returns the model's profile from the store, or measures it. A batch
// above one that takes longer than half the SLO is of no use (INFless Eq. 4),
// so larger ones are not measured. One model is measured at a time.
func (c *Controller) profile(ctx context.Context, r revision) (prepared string, p *profiler.Profile, err error) {
	hash, err := c.options.Models.Hash(r.file)
	if err != nil {
		return "", nil, err
	}
	key, until := c.key(hash, r.Function), r.Inference.SLO/2
	if p := c.stored(key); p != nil && covers(p, r.Inference.MaxBatch, until) {
		prepared, err := c.ready(ctx, r.file)
		return prepared, p, err
	}
	if err := take(ctx, c.measuring); err != nil {
		return "", nil, err
	}
	defer give(c.measuring)
	if p := c.stored(key); p != nil { // Somebody may just have measured it.
		if covers(p, r.Inference.MaxBatch, until) {
			prepared, err := c.ready(ctx, r.file)
			return prepared, p, err
		}
		for _, m := range last(p) { // Those who use the stored one go on to.
			until = max(until, time.Duration(m.Median)*time.Microsecond)
		}
	}
	began := time.Now()
	c.options.Logger.Info().Str("function", r.Name).Msg("measuring the model")
	prepared, p, err = c.options.Models.Measure(ctx, r.file, r.Inference.MaxBatch, until)
	if err != nil {
		return "", nil, err
	}
	c.options.Logger.Info().Str("function", r.Name).Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("measured the model")
	if err := c.options.Profiles.PutProfile(key, p); err != nil {
		// It serves all the same.
		c.options.Logger.Error().Str("function", r.Name).Err(err).Msg("keep profile; a restart will measure the model again")
	}
	return prepared, p, nil
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

// smallestShare is the least CPU that an instance is given, in millicores.
const smallestShare = 250

// candidates lists the configs that the function's instances may have: the
// measured batch sizes on a quarter, a half and all of 1, 2, 4, … cores. A CPU
// limit of the deployment bounds the share, a memory limit is the instance's.
func (c *Controller) candidates(f *provider.Function, p *profiler.Profile) []scaling.Candidate {
	shares := []int{smallestShare, 2 * smallestShare}
	for _, threads := range p.Threads() {
		shares = append(shares, 1000*threads)
	}
	if limit := f.Inference.Limits.CPU; limit > 0 {
		shares = slices.DeleteFunc(shares, func(s int) bool { return s > limit })
		if len(shares) == 0 {
			shares = []int{limit}
		}
	}
	memory := f.Inference.Limits.Memory
	if memory == 0 {
		memory = memoryLimit(p.Memory)
	}
	largest := f.Inference.MaxBatch
	if c.policyName(f) == batching.OneToOneName {
		largest = 1
	}
	return scaling.Candidates(p.Candidates(shares, largest, memory))
}

// memoryLimit is what an instance may use where the deployment does not say:
// twice what was measured, for bodies in flight and the engine's arena, and at
// least 256 MiB.
func memoryLimit(measured int64) int64 { return max(2*measured, 256<<20) }
