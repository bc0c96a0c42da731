package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// display shows the state of functions and nodes: to users, in metrics and in the log.
type display struct {
	functions map[string]*function
	finder    *latency.Finder
	metrics   *metrics.Metrics
	decisions *decisions.Log
	// led reports whether this replica led at its last look.
	led func() bool
	// arriving and unprepared are those of [Options].
	arriving, unprepared func(function string) string
	// shown holds the nodes as the metrics show them, recorded is when the metrics
	// were last updated.
	shown    map[string]cluster.Node
	recorded time.Time
}

// description returns the state of a function. The lock is held.
func (c *display) description(fn *function) keeper.Description {
	d := fn.Describe()
	d.Problem, d.Cold, d.Wanted, d.Measured = fn.problem(), statsOf(fn).Cold, fn.replicas, fn.measured()
	return d
}

// problem returns why the function or its latest deployment is not served as it should be,
// "" if there is no problem. It names the files of bundles relative to them, and shows no other path of
// the machine: logs have the whole.
func (fn *function) problem() string {
	why := wholeProblem(fn)
	if why == "" {
		return ""
	}
	dirs := []string{fn.bundle}
	for _, a := range fn.artefacts {
		dirs = append(dirs, a.Bundle)
	}
	return web.ConcealBelow(why, dirs...)
}

// wholeProblem is the problem with whole paths.
func wholeProblem(fn *function) string {
	why := cmp.Or(fn.failed, fn.Failures.Why, fn.slow(), fn.servingProblem())
	if why == "" {
		return cmp.Or(dispatch.Problem(fn.dispatcher), fn.unregistered, leftOut(fn.artefacts), fn.refusing)
	}
	if fn.earlier() {
		return provider.Before(why)
	}
	return why
}

// servingProblem is a problem that can keep instances from serving, "" if there is none. A function that is too slow for
// its objective serves.
func (fn *function) servingProblem() string {
	return cmp.Or(fn.failed, fn.Failures.Why, fn.Unplaced, fn.ineligible, tooLarge(fn.candidates(), fn.types.largest))
}

// progress says what a function whose models are not known yet waits for, "" if they are or if that
// failed.
func (c *display) progress(fn *function) string {
	if fn.measured() || fn.failed != "" {
		return ""
	}
	return cmp.Or(c.finder.Progress(fn.Name), "the model is being read") + "; requests wait until its times are known"
}

// earlier reports whether an earlier deployment serves. It does if the latest one failed, or
// if only instances of earlier revisions are ready.
func (fn *function) earlier() bool {
	if fn.failed != "" {
		return fn.measured()
	}
	others := false
	for _, in := range fn.Instances {
		if in.There() && in.Revision == fn.Revision {
			return false
		}
		others = others || in.There()
	}
	return others
}

// status is what the provider shows of a function. Replicas is the larger of two numbers: the
// instances that exist, and those to keep without load. A function at zero shows 0; the
// stock gateway, configured not to scale from zero itself, still passes requests on. The lock is held.
func (c *display) status(fn *function) provider.Status {
	s := provider.Status{
		Problem: fn.problem(), Slight: fn.servingProblem() == "",
		Plan:  joined(planText(fn.artefacts, fn.planning), unbatched(fn.artefacts), shadowText(fn)),
		Reach: reachText(fn.artefacts), Texts: textsText(fn.artefacts, &fn.Inference), Progress: c.progress(fn), Usage: fn.Usage(), Stopped: fn.stopped,
	}
	if fn.wanted != nil {
		s.Learnt = fn.wanted.Learnt
	}
	for _, in := range fn.Instances {
		if !in.Retiring {
			s.Replicas++
			s.Pods += uint64(in.Config.Members())
		}
		if in.There() { // Also a parked instance: it answers as quickly.
			s.AvailableReplicas++
		}
	}
	if c.unprepared != nil {
		s.Plan = joined(s.Plan, c.unprepared(fn.Name))
	}
	if c.arriving != nil {
		s.Arriving = c.arriving(fn.Name)
	}
	if s.AvailableReplicas == 0 {
		s.Progress = cmp.Or(s.Progress, s.Arriving)
	}
	atLimit := fn.Inference.MaxReplicas > 0 && s.Replicas >= uint64(fn.Inference.MaxReplicas)
	s.Short = !atLimit && (fn.Failures.Why != "" || fn.Unplaced != "")
	s.Replicas, s.Pods = max(s.Replicas, fn.replicas), max(s.Pods, fn.replicas)
	return s
}

// warnPause is the minimum time between two warnings that a function has too few instances.
// The explanation changes at every look, because it contains the load.
const warnPause = 30 * time.Second

// explain stores for each function why it cannot have the instances that it needs. It logs a
// new reason, at most once every warnPause, and passes it to the dispatcher for requests
// that wait.
func (c *display) explain(now time.Time, plan scaling.Plan, nodes []cluster.Node) {
	unplaced := map[string]scaling.Unplaced{}
	for _, u := range plan.Unplaced {
		unplaced[u.Function] = u
	}
	for name, fn := range c.functions {
		fn.short = unplaced[name].Reason
		// Without a profile, and in the pause after a crash, the engine gets no
		// configs, so its explanation means nothing. Nor does one of an earlier revision.
		why := unplaced[name].Explanation
		if why != "" {
			why = cmp.Or(fn.ineligible, noDevice(fn.candidates(), nodes), tooLarge(fn.candidates(), fn.types.largest), why)
			if fn.refusing != "" {
				why += "; " + fn.refusing
			}
		}
		if why != fn.Unplaced && fn.planned == fn.Revision && !fn.Failures.Pausing(now) {
			fn.Unplaced = why
			if why != "" && now.Sub(fn.warned) >= warnPause {
				fn.warned = now
				fn.log.Warn().Str("why", why).Msg("the function cannot have all the instances that it needs")
			}
		}
		fn.tell(now)
	}
}

// tooLarge says that no node could hold an instance with any of the configs, even if nothing else were
// there, "" if one could. largest has the most CPU and memory of a node, zero if there is no node yet. A
// cluster may get such a node, so the function waits for it.
func tooLarge(candidates []capacity.Candidate, largest cluster.Resources) string {
	if len(candidates) == 0 || largest == (cluster.Resources{}) {
		return ""
	}
	least := candidates[0].Config.Each()
	for _, c := range candidates {
		each := c.Config.Each()
		least.CPU, least.Memory = min(least.CPU, each.CPU), min(least.Memory, each.Memory)
	}
	switch {
	case least.CPU > largest.CPU:
		return fmt.Sprintf("no node has %g cores, which an instance needs: the largest has %g; the function waits for such a node, unless it requests less",
			float64(least.CPU)/1000, float64(largest.CPU)/1000)
	case least.Memory > largest.Memory:
		return fmt.Sprintf("no node has %d MiB of memory, which an instance needs: the largest has %d MiB; the function waits for such a node, unless it is limited to less",
			least.Memory>>20, largest.Memory>>20)
	}
	return ""
}

// noDevice says why no GPU of the nodes can take a function that runs on shares only, even if nothing
// else were there; "" if one can, or if the function runs on cores.
func noDevice(candidates []capacity.Candidate, nodes []cluster.Node) string {
	if len(candidates) == 0 {
		return ""
	}
	least, most, found, lost := candidates[0].Config.GPUMemory, int64(0), false, ""
	for _, c := range candidates {
		if c.Config.GPU == 0 {
			return ""
		}
		least = min(least, c.Config.GPUMemory)
	}
	for _, n := range nodes {
		if n.Devices == nil && n.Total.GPU > 0 {
			most, found = max(most, n.Total.GPUMemory), true
		}
		for _, d := range n.Devices {
			if d.Lost != "" {
				lost = fmt.Sprintf("%s of node %s: %s", d.UUID, n.Name, d.Lost)
				continue
			}
			most, found = max(most, d.Total.GPUMemory), true
		}
	}
	switch {
	case !found && lost != "":
		return "no GPU can be used; " + lost
	case !found:
		return "no node has a GPU to share"
	case most < least:
		return fmt.Sprintf("no GPU is large enough: the model needs %d MiB of memory there, and the largest has %d MiB", least>>20, most>>20)
	}
	return ""
}

// tell gives the dispatcher the answer for requests that find no ready instance.
func (fn *function) tell(now time.Time) {
	switch {
	case fn.measured():
		fn.Tell(now)
	case fn.failed == "" && fn.planning:
		fn.Announce(beingPlanned, false)
	default:
		fn.Announce(fn.failed, fn.failed != "")
	}
}

// record updates the metrics of nodes and functions, if the latest update was not within the pause. Of several
// replicas only the leader shows functions.
func (c *display) record(now time.Time, nodes []cluster.Node, pause time.Duration) {
	if now.Sub(c.recorded) < pause {
		return
	}
	c.recorded = now
	for _, n := range nodes {
		if !c.shown[n.Name].Same(&n) {
			c.shown[n.Name] = n
			c.metrics.SetNode(n)
		}
	}
	leading := c.led()
	for _, fn := range c.functions {
		fn.record(leading)
		if leading {
			fn.Problems.Look(c.decisions, now, fn.Name, fn.problem)
		}
	}
}

// record updates the function's metrics.
func (fn *function) record(leading bool) {
	parked := 0
	if fn.Record(leading, func(in *instance) (string, bool) { return in.config, in.serves() }) {
		fn.recordRatios()
	}
	fn.recordStates(leading)
	recordShadows(fn, leading)
	for _, in := range fn.Instances {
		if leading && in.Parked && !in.serves() {
			parked++
		}
	}
	if parked != fn.parked {
		fn.parked = parked
		fn.Metrics.SetParked(parked)
	}
}

// joined joins the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}
