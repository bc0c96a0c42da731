package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// entries is the approximate length of a series that only a drawing needs.
const entries = 1000

// matrix runs each case under each system and returns results[case][system].
func (o Options) matrix(ctx context.Context, cases []*scenario.Scenario, systems []systems.System) ([][]*sim.Result, error) {
	results := make([][]*sim.Result, len(cases))
	for i := range results {
		results[i] = make([]*sim.Result, len(systems))
	}
	err := o.each(ctx, len(cases)*len(systems), func(ctx context.Context, i int, part func(float64)) error {
		c, system := cases[i/len(systems)], systems[i%len(systems)]
		s, err := c.Setup(system, 1, c.Seed)
		if err != nil {
			return err
		}
		s.Progress = part
		if o.Drawings && s.Sample == 0 {
			s.Sample = max(time.Second, s.Duration/entries)
		}
		if results[i/len(systems)][i%len(systems)], err = o.run(ctx, s); err != nil {
			return fmt.Errorf("%s under %s: %w", caseName(c), system.Name, err)
		}
		return nil
	})
	return results, err
}

// traces simulates the cases at their own load (INFless Fig. 12(a), 14, 15(a)).
func traces(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	results, err := o.matrix(ctx, cases, o.Systems)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	var drawn []draw.Trace
	for i, c := range cases {
		traceResults(out, caseName(c), o.names(), results[i])
		out.Tables = append(out.Tables, traceTable(caseName(c), o.names(), results[i]))
		at := draw.Trace{Name: caseName(c), Policies: o.names(), Results: results[i]}
		drawn = append(drawn, at)
	}
	if o.Drawings {
		out.Drawings = draw.Traces(drawn)
	}
	return out, nil
}

// traceResults adds one case's named results.
func traceResults(out *Outcome, trace string, names []string, results []*sim.Result) {
	per := map[string]float64{}
	for i, name := range names {
		r := results[i]
		total := r.Totals()
		per[name] = r.ThroughputPerResource()
		end := trace + "." + name
		out.add("slo_violation_pct."+end, 100*total.Violations(), "%", beside(draw.PaperViolation(trace, name)))
		v, ok := draw.PaperPerResource(trace, name)
		late := ""
		if total.Violations() > 1-Attained {
			late = fmt.Sprintf("while %.3g %% miss their objective", 100*total.Violations())
		}
		out.add("throughput_per_resource."+end, per[name], "requests", joined(late, beside(v, ok, "Fig. 12(a), relative")))
		out.add("turned_away_pct."+end, turnedAway(total), "%", "answered without an execution; the rest of slo_violation_pct is late")
		out.add("cold_rate_pct."+end, 100*total.ColdRate(), "%", "")
		out.add("idle_pct."+end, percent(r.IdleSeconds, r.ResourceSeconds), "%", "of what instances hold")
	}
	for _, pair := range compared {
		if a, b := per[pair[0]], per[pair[1]]; a > 0 && b > 0 {
			v, ok := draw.PaperPerResource(trace, pair[0])
			w, too := draw.PaperPerResource(trace, pair[1])
			out.add("throughput_per_resource_ratio."+trace+"."+pair[0]+"_over_"+pair[1], a/b, "", beside(v/w, ok && too, "Fig. 12(a)"))
		}
	}
}

// turnedAway is the part of the requests in % that were answered without an execution.
func turnedAway(total sim.FunctionResult) float64 {
	return percent(float64(total.Rejected), float64(total.Requests))
}

func percent(part, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return 100 * part / of
}

// traceTable returns one case's table. It shows throughput for each resource also relative
// to INFless', as the paper does.
func traceTable(trace string, names []string, results []*sim.Result) Table {
	t := Table{
		Title:  fmt.Sprintf("%s: what each policy makes of the same requests.", trace),
		Header: []string{"policy", "requests", "SLO missed %", "paper", "turned away %", "cold %", "p50 ms", "p99 ms", "served per resource·s", "÷ infless", "paper", "idle %", "fragments %", "starts"},
		Notes: []string{
			"resource: β·cores + % of a GPU. SLO missed: late, or turned away. served per resource·s counts what is in time, and",
			"says little of a policy by whose instances much is late: those cost less. paper: " + draw.PaperSource + ",",
			"§5.2 and Fig. 12(a).",
		},
	}
	base := 0.0
	for i, name := range names {
		if name == systems.INFless {
			base = results[i].ThroughputPerResource()
		}
	}
	for i, name := range names {
		r, there := results[i], or(0, false)
		missed, ok, _ := draw.PaperViolation(trace, name)
		if v, ok := draw.PaperPerResource(trace, name); ok {
			w, _ := draw.PaperPerResource(trace, systems.INFless)
			there = v / w
		}
		total, latency, per := r.Totals(), latencies(r), r.ThroughputPerResource()
		t.row(name, fmt.Sprint(total.Requests), 100*total.Violations(), or(missed, ok), turnedAway(total), 100*total.ColdRate(),
			milliseconds(latency.Quantile(0.5)), milliseconds(latency.Quantile(0.99)),
			per, or(per/base, base > 0), there, percent(r.IdleSeconds, r.ResourceSeconds), r.FragmentPct, fmt.Sprint(r.Starts))
	}
	return t
}
