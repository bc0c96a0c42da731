package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/variant"
)

const (
	// correctPeriod is the time between two corrections of a busy artefact's times.
	// forgetPeriod is that of an artefact without new executions.
	correctPeriod = time.Second
	forgetPeriod  = time.Minute
	// troubledPeriod replaces correctPeriod while the function's requests miss their
	// objective.
	troubledPeriod = 250 * time.Millisecond
)

// pace is how fast an artefact runs on the nodes of one type.
type pace struct {
	// kind is the type of the nodes, "" where nodes do not differ.
	kind string
	// profile is the artefact's, converted to these nodes; times are its times, corrected by
	// executions there.
	profile *profiler.Profile
	times   *correction.Correction
	// means are the mean times of executions, by share; usual are the usual ones, by which
	// interference shows.
	means latency.Means
	usual variant.Usual
	// by and margin are the conversion of the artefact's profile to these nodes
	// ([profiler.Profile.Scaled]). seen: the times were corrected by executions on them, which
	// tell more than any conversion.
	by, margin float64
	seen       bool
	// observed are the executions since the last look. corrected is when times were last
	// corrected. fresh: there were executions since then; unsaved: since times were last
	// stored.
	observed       []correction.Observation
	corrected      time.Time
	fresh, unsaved bool
	kept           kept
}

// observe records an execution of an instance for the times.
func (p *pace) observe(in *instance, x execution) {
	p.seen = true
	p.observed = append(p.observed, x.observation())
	p.means.Observe(x.share, x.size, x.exec, in.promised)
}

// correct corrects the times by the observed executions if a correction is due. changed
// reports whether that changed them.
func (p *pace) correct(now time.Time, troubled bool) (due, changed bool) {
	if len(p.observed) > 0 {
		p.times.Observe(now, p.observed)
		p.observed = p.observed[:0]
		p.fresh, p.unsaved = true, true
	}
	pause := forgetPeriod
	if p.fresh {
		pause = correctPeriod
		if troubled {
			pause = troubledPeriod
		}
	}
	if now.Sub(p.corrected) < pause {
		return false, false
	}
	p.corrected, p.fresh = now, false
	before := p.times.Profile()
	if !p.times.Update(now) {
		return true, false
	}
	if p.times.Profile() != before { // The means are ratios to the profile's times.
		p.means, p.usual = latency.Means{}, variant.Usual{}
	}
	return true, true
}

// on returns the pace on a type of nodes, the first one if there is none of that type.
func (a *artefact) on(kind string) *pace {
	for _, p := range a.paces {
		if p.kind == kind {
			return p
		}
	}
	return a.paces[0]
}

// paceOf returns the pace with these times, nil if there is none.
func (a *artefact) paceOf(times *correction.Correction) *pace {
	for _, p := range a.paces {
		if p.times == times {
			return p
		}
	}
	return nil
}

// join makes the artefact's plan from those of the types of nodes that there are.
func (a *artefact) join(f *provider.Function, rules *latency.Rules, types *nodeTypes) latency.Plan {
	kinds, here := types.kinds, types.here(rules)
	if len(kinds) == 0 {
		kinds = []string{""}
	}
	plans := make([]latency.Plan, len(kinds))
	for i, kind := range kinds {
		p := a.on(kind)
		plans[i] = here.Plan(f, p.profile, p.times)
	}
	joined, lead, suits := latency.Join(plans)
	a.lead, a.unsuited = a.on(kinds[lead]), nil
	for i, kind := range kinds {
		if !suits[i] {
			a.unsuited = append(a.unsuited, kind)
		}
	}
	a.named(joined.Candidates)
	return joined
}

// paces keeps the artefacts' times on the types of nodes.
type paces struct {
	nodeTypes
	// yardstick is Options.Yardstick. records has the stored corrections.
	yardstick func(kind string) float64
	rules     *latency.Rules
	records   *latency.Records
}

// unlike adds the artefact's paces on the types of nodes that it lacks, and makes those again whose
// yardsticks have changed before anything ran there. A new one begins with its stored correction,
// otherwise with what was seen on the nodes so far: a model that is slower than predicted is so
// everywhere.
func (c *paces) unlike(fn *function, a *artefact, function *provider.Function) {
	for _, kind := range c.kinds {
		at := slices.IndexFunc(a.paces, func(p *pace) bool { return p.kind == kind })
		if kind == "" || at >= 0 && a.paces[at].seen {
			continue
		}
		p := &pace{kind: kind, means: latency.Means{}}
		p.by, p.margin = c.conversion(a.profile, kind)
		p.profile = a.profile.Scaled(p.by, p.margin)
		if p.margin > 0 && c.rules.Hopeless(function, c.rules.Promised(function, p.profile)) != nil {
			// The margin is an assumption. It must not keep a function from nodes, where executions
			// would tell.
			p.margin = 0
			p.profile = a.profile.Scaled(p.by, 0)
		}
		if at >= 0 && a.paces[at].by == p.by && a.paces[at].margin == p.margin {
			continue
		}
		p.times, p.seen = c.records.CorrectionFrom(recordName(function.Name, a.Name, kind), p.profile, latency.Quantile(function), a.paces[0].times.State())
		if at < 0 {
			a.paces = append(a.paces, p)
		} else {
			a.paces[at] = p
		}
		if p.profile != a.profile {
			fn.log.Info().Str("variant", a.Name).Str("nodes", kind).Float64("slower_by", p.by).Float64("margin", p.margin).Msg("the model's times were converted to other nodes")
		}
	}
}

// aim makes the artefact's times those of the function's objective on the nodes that there are.
func (c *paces) aim(a *artefact, function *provider.Function) {
	here := c.here(c.rules)
	for _, p := range a.paces {
		limit, widest := here.Bound(function, p.profile)
		p.times.SetObjective(latency.Quantile(function), limit, widest)
	}
}

// conversion returns by which factor the nodes of a type are slower than this machine, for which
// p is, and the margin for the error of that.
func (c *paces) conversion(p *profiler.Profile, kind string) (by, margin float64) {
	if c.yardstick == nil {
		return 1, 0
	}
	// The yardstick in a profile is one reading, and missing from those of earlier versions.
	own, to := c.yardstick(""), c.yardstick(kind)
	from := cmp.Or(own, p.Yardstick)
	switch {
	case own > 0 && own == to: // Nodes like this one.
		return 1, 0
	case !(from > 0 && to > 0):
		return 1, latency.Unpaced
	}
	return profiler.Paces(from, to), latency.PacedByYardstick
}

// maxKinds is the maximum number of types of nodes that are told apart. The nodes of further
// types count as one.
const maxKinds = 16

// nodeTypes knows the types of the nodes.
type nodeTypes struct {
	// of has the type of each node. Nodes that are gone stay until the next change.
	of map[string]string
	// kinds are the types that there are, with "" for the further ones; nil until nodes differ.
	// Once they did they may again, so a single type is then told apart, too.
	kinds []string
	// yardsticks are those of kinds when they were last read, and this machine's.
	yardsticks []float64
	paced      time.Time
	// largest has the most CPU and the most memory that a node has in all.
	largest cluster.Resources
}

// yardstickPeriod is the time between two looks at the types' yardsticks.
const yardstickPeriod = 10 * time.Second

// pace reads the types' yardsticks if that is due. It reports whether one has changed.
func (c *paces) pace(now time.Time) (changed bool) {
	if c.yardstick == nil || len(c.kinds) == 0 || now.Sub(c.paced) < yardstickPeriod {
		return false
	}
	before := c.yardsticks
	c.paced, c.yardsticks = now, []float64{c.yardstick("")}
	for _, kind := range c.kinds {
		if kind != "" {
			c.yardsticks = append(c.yardsticks, c.yardstick(kind))
		}
	}
	return !slices.Equal(before, c.yardsticks)
}

// here are the rules for the nodes that there are.
func (t *nodeTypes) here(rules *latency.Rules) latency.Rules {
	here := *rules
	here.MostCPU = t.largest.CPU
	return here
}

// look takes in the nodes. It reports whether functions must be planned again: a type is new or gone, or the largest
// node is another one.
func (t *nodeTypes) look(nodes []cluster.Node) (changed bool) {
	before := t.largest.CPU
	t.largest = cluster.Resources{}
	for i := range nodes {
		t.largest.CPU, t.largest.Memory = max(t.largest.CPU, nodes[i].Total.CPU), max(t.largest.Memory, nodes[i].Total.Memory)
	}
	for i := range nodes {
		if known, ok := t.of[nodes[i].Name]; !ok || known != nodes[i].Type {
			return t.read(nodes) || t.largest.CPU != before
		}
	}
	return len(t.of) > 2*len(nodes)+100 && t.read(nodes) || t.largest.CPU != before
}

// read reads the types again.
func (t *nodeTypes) read(nodes []cluster.Node) (changed bool) {
	before, all := t.kinds, map[string]bool{}
	t.of = make(map[string]string, len(nodes))
	for i := range nodes {
		t.of[nodes[i].Name] = nodes[i].Type
		all[nodes[i].Type] = true
	}
	kinds := slices.Sorted(maps.Keys(all))
	if len(kinds) == 0 || t.kinds == nil && len(kinds) == 1 {
		return false
	}
	if len(kinds) > maxKinds {
		kinds = append(slices.DeleteFunc(kinds[:maxKinds], func(kind string) bool { return kind == "" }), "")
	}
	t.kinds = kinds
	return !slices.Equal(before, kinds)
}

// kind returns the type of a node, "" if the nodes do not differ or it is not told apart.
func (t *nodeTypes) kind(node string) string {
	kind := t.of[node]
	if !slices.Contains(t.kinds, kind) {
		return ""
	}
	return kind
}

// retype gives every artefact its times on the types of nodes that there are now, by their present
// yardsticks, and every instance those of its node. The lock is held.
func (c *paces) retype(functions map[string]*function) {
	for _, fn := range functions {
		for _, a := range fn.artefacts {
			own := slices.DeleteFunc(slices.Clone(fn.Sorted()), func(in *instance) bool { return in.own() != a })
			c.unlike(fn, a, fn.Function)
			c.aim(a, fn.Function)
			for _, in := range own {
				in.times = a.on(c.kind(in.Node)).times
			}
			fn.replan(a)
		}
		fn.classing.stale = true
	}
}

// suited returns the nodes of the allowed ones (nil for all) on which the function's objective can
// be met. It returns allowed itself if that is all of them, or if none would be left.
func suited(fn *function, allowed []string, nodes []cluster.Node) []string {
	var unsuited []string
	for _, a := range fn.artefacts {
		if fn.accurate(a) && a.plan.Slow == "" {
			unsuited = append(unsuited, a.unsuited...)
		}
	}
	if len(unsuited) == 0 {
		return allowed
	}
	return without(allowed, nodes, func(name string) bool { return slices.Contains(unsuited, fn.types.kind(name)) })
}

// kept is what is known of the stored record of a value.
type kept struct {
	// at is when it was last written, zero for never by this process.
	at time.Time
	// outline is that of the correction which was written.
	outline correction.State
}
