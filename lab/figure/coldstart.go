package figure

import (
	"context"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// coldPolicy is a compared cold-start policy.
type coldPolicy struct {
	// name is its name in results, policy its name in package coldstart.
	name, policy string
	options      coldstart.Options
	// gamma is the γ with which INFless published LSTH's figures; 0 if none were.
	gamma float64
}

// The names of the two bases of the comparison. hhpWindow is HHP as INFless describes it,
// with which its Fig. 16 compares.
const (
	hhp       = "hhp"
	hhpWindow = "hhp-window"
	// ours is the cold-start policy that the provider runs.
	ours = "faas-infer"
	// least keeps every function for as short as a histogram of minutes can. No histogram
	// policy idles less if requests come within a minute now and then.
	least = "least"
)

// coldPolicies are the compared cold-start policies. Everything else is faas-infer's system
// for all of them.
var coldPolicies = []coldPolicy{
	{name: hhp, policy: "hhp"},
	{name: hhpWindow, policy: "hhp-window"},
	{name: "fixed", policy: "fixed"},
	{name: least, policy: "fixed", options: coldstart.Options{KeepAlive: coldstart.LeastKeepAlive}},
	{name: "lsth-0.3", policy: "lsth", options: coldstart.Options{Gamma: 0.3}, gamma: 0.3},
	{name: "lsth", policy: "lsth", gamma: coldstart.DefaultGamma},
	{name: "lsth-0.7", policy: "lsth", options: coldstart.Options{Gamma: 0.7}, gamma: 0.7},
	{name: ours, policy: "faas-infer"},
}

// coldStart compares the cold-start policies with the hybrid histogram policy: how often
// requests find no instance, and the resources of idle instances (INFless Fig. 16).
func coldStart(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	base, err := baselines.ByName(systems.Default)
	if err != nil {
		return nil, err
	}
	var systems []systems.System
	for _, p := range coldPolicies {
		s, err := base.WithCold(p.policy, p.options)
		if err != nil {
			return nil, err
		}
		systems = append(systems, s)
	}
	results, err := o.matrix(ctx, cases, systems)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	var drawn []draw.ColdStart
	for i, c := range cases {
		drawn = append(drawn, coldResults(out, caseName(c), results[i])...)
	}
	if o.Drawings {
		out.Drawings = append(out.Drawings, draw.ColdStarts(drawn))
	}
	return out, nil
}

// coldChange has by how many % a policy's figures differ from those of a base.
type coldChange struct{ rate, idle, memory float64 }

func changed(r, base *sim.Result) coldChange {
	a, b := r.Totals(), base.Totals()
	return coldChange{change(a.ColdRate(), b.ColdRate()), change(r.IdleSeconds, base.IdleSeconds), change(r.IdleMemorySeconds, base.IdleMemorySeconds)}
}

// add adds the change under names that end with end.
func (c coldChange) add(out *Outcome, end, rate, idle, memory string) {
	out.add("cold_rate_change_pct."+end, c.rate, "%", rate)
	out.add("idle_waste_change_pct."+end, c.idle, "%", idle)
	out.add("idle_memory_change_pct."+end, c.memory, "%", memory)
}

// coldResults adds one trace's figures.
func coldResults(out *Outcome, trace string, results []*sim.Result) []draw.ColdStart {
	at := func(name string) *sim.Result {
		return results[slices.IndexFunc(coldPolicies, func(p coldPolicy) bool { return p.name == name })]
	}
	t := Table{
		Title:  fmt.Sprintf("%s: cold starts and idle waste under each cold-start policy.", trace),
		Header: []string{"policy", "requests", "cold %", "vs hhp-window %", "paper", "vs hhp %", "idle resource·s", "vs hhp-window %", "paper", "vs hhp %", "idle GiB·h", "woken %", "SLO missed %", "starts"},
		Notes: []string{
			"cold: found no ready instance. idle: β·cores + % of a GPU of instances that execute nothing, times seconds; beside it the",
			"memory and GPU memory that they hold. woken: found its instance loaded, but parked, without CPU and GPU share. hhp-window:",
			"HHP as INFless describes it (§3.5), with which it compares; hhp: as Shahrad et al. have it. lsth: γ = 0.5.",
			fmt.Sprintf("least: kept for %v, the shortest time that a histogram of minutes can give. paper: %s, Fig. 16.", coldstart.LeastKeepAlive, draw.PaperSource),
		},
	}
	var drawn []draw.ColdStart
	for i, p := range coldPolicies {
		r := results[i]
		total, window, other := r.Totals(), changed(r, at(hhpWindow)), changed(r, at(hhp))
		out.add("cold_rate_pct."+trace+"."+p.name, 100*total.ColdRate(), "%", "")
		out.add("idle_waste."+trace+"."+p.name, r.IdleSeconds, "resource·s", "")
		out.add("idle_memory."+trace+"."+p.name, r.IdleMemorySeconds/3600, "GiB·h", "")
		out.add("woken_rate_pct."+trace+"."+p.name, 100*total.WokenRate(), "%", "requests that found their instance parked")
		there, wasted, known := draw.PaperColdStart(trace, p.gamma)
		where := fmt.Sprintf("Fig. 16, γ = %v", p.gamma)
		switch p.name {
		case hhpWindow:
		case ours:
			other.add(out, trace, "against HHP", "against HHP", "against HHP: memory of idle instances, which the above leaves out")
			window.add(out, trace+"."+ours+"_over_"+hhpWindow, "against HHP of four hours", "against HHP of four hours", "against HHP of four hours")
		default:
			window.add(out, trace+"."+p.name, joined("against HHP of four hours", beside(there, known, where)), joined("against HHP of four hours", beside(wasted, known, where)), "against HHP of four hours")
		}
		t.row(p.name, fmt.Sprint(total.Requests), 100*total.ColdRate(), or(window.rate, p.name != hhpWindow), or(there, known), or(other.rate, i > 0),
			r.IdleSeconds, or(window.idle, p.name != hhpWindow), or(wasted, known), or(other.idle, i > 0), r.IdleMemorySeconds/3600, 100*total.WokenRate(), 100*total.Violations(), fmt.Sprint(r.Starts))
		drawn = append(drawn, draw.ColdStart{Trace: trace, Policy: p.name, Rate: 100 + window.rate, Idle: 100 + window.idle, Memory: 100 + window.memory})
		if known && p.gamma == coldstart.DefaultGamma {
			drawn = append(drawn, draw.ColdStart{Trace: trace, Policy: p.name, Paper: true, Rate: 100 + there, Idle: 100 + wasted})
			if bound := changed(at(least), at(hhpWindow)).idle; wasted < bound {
				t.Notes = append(t.Notes, fmt.Sprintf("The paper's %s %% idle waste is less than that of the shortest keep-alive, %s %%: no histogram of one function's idle times in minutes reaches it.", number(wasted), number(bound)))
			}
		}
	}
	out.Tables = append(out.Tables, t)
	return drawn
}

// change returns by how many % v differs from base, NaN if only base is 0.
func change(v, base float64) float64 {
	if base == 0 {
		if v == 0 {
			return 0
		}
		return or(0, false)
	}
	return 100 * (v/base - 1)
}
