package control

import (
	"math/bits"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// correctPeriod is the time between two corrections of a busy function's
	// times, forgetPeriod of one of which nothing new was seen.
	correctPeriod = time.Second
	forgetPeriod  = time.Minute
	// hurryPeriod is that of a function whose requests miss their objective.
	hurryPeriod = 250 * time.Millisecond
)

// learn takes in what the function's instances have executed since the last
// look, and now and then draws its conclusions. The lock is held.
func (c *Controller) learn(now time.Time, fn *function) {
	c.fallBack(fn)
	fn.executed = fn.dispatcher.Executed(fn.executed[:0])
	if c.several() {
		c.ran.Add(fn.Name, fn.executed)
		fn.executed = fn.peers.TakeExecuted(fn.executed)
	}
	if fn.times == nil {
		return
	}
	fn.observed = fn.observed[:0]
	for _, e := range fn.executed {
		if in, ok := fn.instances[e.Instance]; ok && in.times == fn.times && in.alike(now) {
			fn.observed = append(fn.observed, correction.Observation{Millicores: in.Config.CPU, Batch: e.Size, Exec: e.Exec, Beside: e.Beside})
			fn.means.Observe(in.Config.CPU, e.Size, e.Exec, in.promised)
		}
	}
	if len(fn.observed) > 0 {
		fn.times.Observe(now, fn.observed)
		fn.fresh, fn.unsaved = true, true
	}
	pause := forgetPeriod
	if fn.fresh {
		pause = correctPeriod
		if fn.steering.Troubled() {
			pause = hurryPeriod
		}
	}
	if now.Sub(fn.corrected) < pause {
		return
	}
	fn.corrected, fn.fresh = now, false
	before := fn.times.Profile()
	if fn.times.Update(now) {
		if fn.times.Profile() != before { // The means are parts of its times.
			fn.means = latency.Means{}
		}
		c.replan(fn)
	}
	fn.candidates = fn.means.Candidates(fn.times.Profile(), fn.candidates)
	fn.recordRatios()
}

// replan gives the engine and the instances the corrected times, where these tell
// anything else than before. Nothing is restarted for it; what the engine makes
// of it, it says in the same pass.
func (c *Controller) replan(fn *function) {
	next := c.rules.Plan(fn.Function, fn.profile, fn.times)
	if next.Slow != fn.plan.Slow || next.Scale != fn.plan.Scale || differ(fn.candidates, next.Candidates) {
		event := c.options.Logger.Info()
		if next.Slow != "" && fn.plan.Slow == "" {
			event = c.options.Logger.Warn().Str("why", next.Slow)
		}
		event.Str("function", fn.Name).Msg("the model's times were corrected")
		fn.steering.Corrected(slower(fn.candidates, next.Candidates, fn.sorted()))
		fn.plan, fn.candidates = next, next.Candidates
	}
	for _, in := range fn.sorted() {
		c.refit(in)
	}
}

// differ reports whether the times of two lists of candidates do.
func differ(before, after []capacity.Candidate) bool {
	times := func(from []capacity.Candidate) (out []time.Duration) {
		for _, x := range from {
			out = append(out, x.Exec)
		}
		return out
	}
	same := slices.EqualFunc(before, after, func(a, b capacity.Candidate) bool { return a.Config == b.Config })
	return !same || correction.Differ(times(before), times(after))
}

// refit gives an instance its function's corrected times and tells the dispatcher
// what is new. The lock is held.
func (c *Controller) refit(in *instance) {
	if c.fit(in) && in.serves() {
		in.up(c.rules.Queue(in.function.Function))
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
		in.promised = fn.times.Profile().Table(len(in.table), in.Config.CPU)
	}
	usable := c.rules.Usable(in.function.Function, in.table)
	if in.useless = usable == 0; in.useless {
		in.fallback = c.rules.Fallback(in.function.Function, in.table)
	}
	batch := max(1, usable)
	if batch < len(in.table) {
		batch = 1 << (bits.Len(uint(batch)) - 1) // As candidates are.
	}
	changed = changed || batch != in.batch
	in.batch, in.exec = batch, in.table[batch-1]
	return changed
}

// table lists the function's corrected times of batches up to batch on a CPU share, as
// they are planned with.
func (c *Controller) table(fn *function, batch, millicores int) []time.Duration {
	return fn.plan.Scaled(fn.times.Table(batch, millicores))
}

// recordRatios shows in the metrics what measured times are of predicted ones,
// for each config that serves.
func (fn *function) recordRatios() {
	if fn.times == nil {
		return
	}
	ratios, asked := map[string]float64{}, map[string]bool{}
	for _, in := range fn.instances {
		// Those of one config have the same times.
		if asked[in.config] || !in.there() || in.times != fn.times {
			continue
		}
		asked[in.config] = true
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
