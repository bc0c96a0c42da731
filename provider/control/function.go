package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
)

// function is a deployed function with everything that runs for it.
type function struct {
	*provider.Function
	// bundle is the bundle's directory, prepared the directory that instances
	// load; it is set with profile.
	bundle, prepared string
	dispatcher       *dispatch.Dispatcher
	metrics          *metrics.FunctionMetrics
	meter            meter
	instances        map[cluster.InstanceID]*instance

	// profile and candidates are nil until the model has been measured.
	profile    *profiler.Profile
	candidates []scaling.Candidate
	// preparing counts the measurements under way.
	preparing int
	problem   string
	// unplaced is why it has too few instances, "" if it has enough; shown
	// are the configs that the metrics hold a count of.
	unplaced string
	shown    map[string]int

	// replicas is how many instances are kept even without load.
	replicas uint64
	removed  bool
	// scaledToZero: the scale route asked for none; a request undoes it.
	scaledToZero bool
	// arrivals is the counter at the last look; lastActive is when there was
	// last a request.
	arrivals   uint64
	lastActive time.Time
	// failures counts instances in a row that never became ready; notBefore
	// is when the next may be started.
	failures  int
	notBefore time.Time
}

// instance is one instance with its function.
type instance struct {
	cluster.Instance
	function *function
	exec     time.Duration
	retiring bool
	// gone is closed when nothing of it is left.
	gone chan struct{}
}

func (c *Controller) newFunction(f *provider.Function) (*function, error) {
	policy, err := c.policy(f)
	if err != nil {
		return nil, err
	}
	fn := &function{Function: f, metrics: c.options.Metrics.Function(f.Name), instances: map[cluster.InstanceID]*instance{}, lastActive: time.Now()}
	fn.dispatcher = dispatch.New(dispatch.Options{
		Policy: policy, SLO: f.Inference.SLO, ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit,
		Recorder: fn.metrics, OnCold: c.Wake,
		OnLost: func(id cluster.InstanceID, cause error) { c.lost(id, cause) },
	})
	return fn, nil
}

// policyName is the batching policy of a function.
func (c *Controller) policyName(f *provider.Function) string {
	return cmp.Or(f.Inference.Policy, c.options.Policy)
}

func (c *Controller) policy(f *provider.Function) (batching.Policy, error) {
	return batching.New(c.policyName(f), batching.Options{SLO: f.Inference.SLO, MaxBatch: f.Inference.MaxBatch})
}

// reconfigure takes over what a new deployment changes of the batching.
func (fn *function) reconfigure(c *Controller, f *provider.Function) error {
	if c.policyName(f) == c.policyName(fn.Function) && f.Inference.SLO == fn.Inference.SLO && f.Inference.MaxBatch == fn.Inference.MaxBatch {
		return nil
	}
	policy, err := c.policy(f)
	if err != nil {
		return err
	}
	fn.dispatcher.Reconfigure(policy, f.Inference.SLO)
	return nil
}

func (fn *function) sorted() []*instance {
	out := make([]*instance, 0, len(fn.instances))
	for _, in := range fn.instances {
		out = append(out, in)
	}
	slices.SortFunc(out, func(a, b *instance) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// prepare finds or measures the model's profile and makes candidates of it.
func (c *Controller) prepare(fn *function, f *provider.Function, file string) {
	prepared, profile, err := c.profile(f, file)
	c.mu.Lock()
	defer c.mu.Unlock()
	fn.preparing--
	if fn.removed || fn.Revision != f.Revision {
		return
	}
	if err != nil {
		if c.ctx.Err() == nil {
			fn.problem = fmt.Sprintf("the model could not be measured: %v", err)
			c.options.Logger.Error().Str("function", f.Name).Err(err).Msg("measure model")
		}
		return
	}
	fn.prepared, fn.profile, fn.problem = prepared, profile, ""
	fn.candidates = c.candidates(f, profile)
	c.claim(fn)
	c.Wake()
}

// profile returns the model's profile from the store, or measures it. A batch
// that takes longer than the SLO is of no use, so it is not measured.
func (c *Controller) profile(f *provider.Function, file string) (prepared string, p *profiler.Profile, err error) {
	hash, err := c.options.Models.Hash(file)
	if err != nil {
		return "", nil, err
	}
	until := f.Inference.SLO
	key := fmt.Sprintf("%s %s b≤%d t≤%v", hash, c.options.ProfileKey, f.Inference.MaxBatch, until)
	if p, err := c.options.Profiles.Profile(key); err == nil {
		prepared, err = c.options.Models.Prepare(c.ctx, file)
		return prepared, p, err
	}
	began := time.Now()
	c.options.Logger.Info().Str("function", f.Name).Msg("measuring the model")
	prepared, p, err = c.options.Models.Measure(c.ctx, file, f.Inference.MaxBatch, until)
	if err != nil {
		return "", nil, err
	}
	c.options.Logger.Info().Str("function", f.Name).Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("measured the model")
	return prepared, p, c.options.Profiles.PutProfile(key, p)
}

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

// claim takes over the instances of an earlier provider that are this
// function's. It needs the profile, for their times.
func (c *Controller) claim(fn *function) {
	if fn.profile == nil {
		return
	}
	for id, in := range c.known {
		if in.Function != fn.Name {
			continue
		}
		delete(c.known, id)
		if len(fn.profile.Table(in.Config.Batch, in.Config.CPU)) == 0 {
			c.loops.Go(func() { c.stop(id) })
			continue // Its config is not among those that were measured.
		}
		c.adopt(fn, in)
		c.options.Logger.Info().Str("function", fn.Name).Str("instance", string(id)).Msg("took over a running instance")
		if in.State == cluster.Ready {
			c.up(c.instances[id])
		}
	}
}

// adopt keeps an instance under its function.
func (c *Controller) adopt(fn *function, in cluster.Instance) {
	exec, _ := fn.profile.ExecTime(in.Config.Batch, in.Config.CPU)
	kept := &instance{Instance: in, function: fn, exec: exec, gone: make(chan struct{})}
	fn.instances[in.ID] = kept
	c.instances[in.ID] = kept
}

// stopUnclaimed stops the instances whose functions are gone.
func (c *Controller) stopUnclaimed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, in := range c.known {
		if _, ok := c.functions[in.Function]; ok {
			continue // Its profile is on its way.
		}
		delete(c.known, id)
		c.options.Logger.Info().Str("function", in.Function).Str("instance", string(id)).Msg("stopping an instance whose function is gone")
		c.loops.Go(func() { c.stop(id) })
	}
}

func (c *Controller) stop(id cluster.InstanceID) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.StopGrace)
	defer cancel()
	if err := c.options.Backend.Stop(ctx, id); err != nil {
		c.options.Logger.Error().Str("instance", string(id)).Err(err).Msg("stop instance")
	}
}
