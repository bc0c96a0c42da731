package figure

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// coldPolicies are the compared cold-start policies. The first is the base of the
// comparison. Everything else is faas-infer's system for all of them.
var coldPolicies = []string{"hhp", "fixed", "lsth", "faas-infer"}

// ours is the cold-start policy that the provider runs.
const ours = "faas-infer"

// coldStart compares the cold-start policies with the hybrid histogram policy: how often
// requests find no instance, and the resources of idle instances (INFless Fig. 16).
func coldStart(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	base, err := systems.ByName(systems.Default)
	if err != nil {
		return nil, err
	}
	var systems []systems.System
	for _, name := range coldPolicies {
		s, err := base.WithCold(name)
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

// gamma is the provider's value of LSTH's parameter.
const gamma = 0.5

// coldResults adds one trace's figures.
func coldResults(out *Outcome, trace string, results []*sim.Result) []draw.ColdStart {
	base := results[0].Totals()
	rate, idle, memory := base.ColdRate(), results[0].IdleSeconds, results[0].IdleMemorySeconds
	there, wasted, known := draw.PaperColdStart(trace, gamma)
	t := Table{
		Title:  fmt.Sprintf("%s: cold starts and idle waste under each cold-start policy.", trace),
		Header: []string{"policy", "requests", "cold %", "vs HHP %", "paper", "idle resource·s", "vs HHP %", "paper", "idle GiB·h", "vs HHP %", "woken %", "SLO missed %", "starts"},
		Notes:  []string{"cold: found no ready instance. idle: β·cores + % of a GPU of instances that execute nothing, times seconds; beside it the memory and GPU memory that they hold. woken: found its instance loaded, but parked, without CPU and GPU share. paper: " + draw.PaperSource + ", Fig. 16, γ = 0.5."},
	}
	var drawn []draw.ColdStart
	for i, name := range coldPolicies {
		r := results[i]
		total := r.Totals()
		colder, wasteful := change(total.ColdRate(), rate), change(r.IdleSeconds, idle)
		out.add("cold_rate_pct."+trace+"."+name, 100*total.ColdRate(), "%", "")
		out.add("idle_waste."+trace+"."+name, r.IdleSeconds, "resource·s", "")
		held := change(r.IdleMemorySeconds, memory)
		out.add("idle_memory."+trace+"."+name, r.IdleMemorySeconds/3600, "GiB·h", "")
		out.add("woken_rate_pct."+trace+"."+name, 100*total.WokenRate(), "%", "requests that found their instance parked")
		lsth := known && name == "lsth"
		switch {
		case i == 0:
		case name == ours:
			out.add("cold_rate_change_pct."+trace, colder, "%", "against HHP; LSTH's: "+beside(there, known, "Fig. 16, γ = 0.5"))
			out.add("idle_waste_change_pct."+trace, wasteful, "%", "against HHP; LSTH's: "+beside(wasted, known, "Fig. 16, γ = 0.5"))
			out.add("idle_memory_change_pct."+trace, held, "%", "against HHP: memory of idle instances, which the above leaves out")
		default:
			out.add("cold_rate_change_pct."+trace+"."+name, colder, "%", beside(there, lsth, "Fig. 16, γ = 0.5"))
			out.add("idle_waste_change_pct."+trace+"."+name, wasteful, "%", beside(wasted, lsth, "Fig. 16, γ = 0.5"))
			out.add("idle_memory_change_pct."+trace+"."+name, held, "%", "")
		}
		t.row(name, fmt.Sprint(total.Requests), 100*total.ColdRate(), or(colder, i > 0), or(there, lsth), r.IdleSeconds, or(wasteful, i > 0), or(wasted, lsth), r.IdleMemorySeconds/3600, or(held, i > 0), 100*total.WokenRate(), 100*total.Violations(), fmt.Sprint(r.Starts))
		drawn = append(drawn, draw.ColdStart{Trace: trace, Policy: name, Rate: 100 + colder, Idle: 100 + wasteful, Memory: 100 + held})
	}
	out.Tables = append(out.Tables, t)
	if known {
		drawn = append(drawn, draw.ColdStart{Trace: trace, Policy: "lsth", Paper: true, Rate: 100 + there, Idle: 100 + wasted})
	}
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
