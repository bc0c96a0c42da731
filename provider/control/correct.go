package control

import (
	"math/bits"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
)

const (
	// correctPeriod is the time between two corrections of a busy function's
	// times, forgetPeriod of one of which nothing new was seen.
	correctPeriod = time.Second
	forgetPeriod  = time.Minute
	// defaultQuantile is what part of a function's executions is to take no
	// longer than is said, where its deployment names no percentile.
	defaultQuantile = 0.95
)

func quantile(f *provider.Function) float64 {
	if f.Inference.PercentileStated {
		return f.Inference.Percentile / 100
	}
	return defaultQuantile
}

// newCorrection corrects the profile's times by what an earlier provider has
// seen, if anything.
func (c *Controller) newCorrection(f *provider.Function, p *profiler.Profile) *correction.Correction {
	times := correction.New(p, quantile(f))
	if c.options.Corrections == nil {
		return times
	}
	kept, err := c.options.Corrections.Correction(f.Name)
	if err != nil {
		return times // There is none, or it cannot be read; it comes again.
	}
	if err := times.Restore(kept, time.Now()); err != nil {
		c.options.Logger.Debug().Str("function", f.Name).Err(err).Msg("what was seen of the function's times before does not count")
	}
	return times
}

// learn takes in what the function's instances have executed since the last
// look, and now and then draws its conclusions. The lock is held.
func (c *Controller) learn(now time.Time, fn *function) {
	fn.executed = fn.dispatcher.Executed(fn.executed[:0])
	if c.several() {
		c.ran.add(fn.Name, fn.executed)
		fn.executed = fn.others.takeExecuted(fn.executed)
	}
	if fn.times == nil {
		return
	}
	fn.observed = fn.observed[:0]
	for _, e := range fn.executed {
		if in, ok := fn.instances[e.Instance]; ok && in.times == fn.times && in.alike(now) {
			fn.observed = append(fn.observed, correction.Observation{Millicores: in.Config.CPU, Batch: e.Size, Exec: e.Exec})
			fn.observeMean(in, e.Size, e.Exec)
		}
	}
	if len(fn.observed) > 0 {
		fn.times.Observe(now, fn.observed)
		fn.fresh, fn.unsaved = true, true
	}
	pause := forgetPeriod
	if fn.fresh {
		pause = correctPeriod
	}
	if now.Sub(fn.corrected) < pause {
		return
	}
	fn.corrected, fn.fresh = now, false
	if fn.times.Update(now) {
		c.replan(fn)
	}
	fn.remean()
	fn.recordRatios()
}

// replan gives the engine and the instances the corrected times, where these tell
// anything else than before. Nothing is restarted for it; what the engine makes
// of it, it says in the same pass.
func (c *Controller) replan(fn *function) {
	next := c.plan(fn.Function, fn.profile, fn.times)
	if next.slow != fn.slow || differ(fn.candidates, next.candidates) {
		event := c.options.Logger.Info()
		if next.slow != "" && fn.slow == "" {
			event = c.options.Logger.Warn().Str("why", next.slow)
		}
		event.Str("function", fn.Name).Msg("the model's times were corrected")
		fn.candidates, fn.slow, fn.lastResort = next.candidates, next.slow, next.lastResort
	}
	for _, in := range fn.sorted() {
		c.refit(in)
	}
}

// differ reports whether the times of two lists of candidates do.
func differ(before, after []scaling.Candidate) bool {
	times := func(from []scaling.Candidate) (out []time.Duration) {
		for _, x := range from {
			out = append(out, x.Exec)
		}
		return out
	}
	same := slices.EqualFunc(before, after, func(a, b scaling.Candidate) bool { return a.Config == b.Config })
	return !same || correction.Differ(times(before), times(after))
}

// refit gives an instance its function's corrected times and tells the dispatcher
// what is new. The lock is held.
func (c *Controller) refit(in *instance) {
	if c.fit(in) && in.serves() {
		in.up(c.queue(in.function.Function))
	}
}

// fit takes over the function's corrected times, if they are the instance's own,
// and finds out what the instance is good for under the objective; it tells
// whether anything has changed.
func (c *Controller) fit(in *instance) (changed bool) {
	if fn := in.function; in.times == fn.times {
		if table := c.table(fn, in.Config.Batch, in.Config.CPU); correction.Differ(in.table, table) {
			in.table, changed = table, true
		}
		in.promised = fn.profile.Table(len(in.table), in.Config.CPU)
	}
	usable := c.limits(in.function.Function).Usable(in.table, in.function.Inference.SLO)
	in.useless = usable == 0
	batch := max(1, usable)
	if batch < len(in.table) {
		batch = 1 << (bits.Len(uint(batch)) - 1) // As candidates are.
	}
	changed = changed || batch != in.batch
	in.batch, in.exec = batch, in.table[batch-1]
	return changed
}

// limits are the options by which the function's batches are bounded: one with
// queues of its instances' own is not planned jointly.
func (c *Controller) limits(f *provider.Function) scaling.Options {
	o := c.options.Scaling.Options
	o.Joint = o.Joint && c.queue(f) == scaling.LateBound
	return o
}

// table lists the function's corrected times of batches up to batch on a CPU
// share. On a share that is the last resort, a request that has waited for no
// more than half the objective is always worth a try.
func (c *Controller) table(fn *function, batch, millicores int) []time.Duration {
	table := fn.times.Table(batch, millicores)
	if millicores == fn.lastResort && len(table) > 0 {
		table[0] = min(table[0], fn.Inference.SLO/2)
	}
	return table
}

// recordRatios shows in the metrics what measured times are of predicted ones,
// for each config that serves.
func (fn *function) recordRatios() {
	if fn.times == nil {
		return
	}
	ratios := map[string]float64{}
	for _, in := range fn.instances {
		if !in.there() || in.times != fn.times {
			continue
		}
		if ratio, ok := fn.times.Ratio(in.Config.CPU); ok {
			ratios[in.config] = ratio
		}
	}
	for config := range fn.ratios {
		if _, ok := ratios[config]; !ok {
			fn.metrics.SetExecRatio(config, 0)
		}
	}
	for config, ratio := range ratios {
		fn.metrics.SetExecRatio(config, ratio)
	}
	fn.ratios = ratios
}
