package figure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
)

// chosen simulates systems that choose among variants (INFaaS Table 3, Fig. 5 to 7).
func chosen(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	results, err := o.matrix(ctx, cases, o.Systems)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	for i, c := range cases {
		at := ""
		if c.Case != "" {
			at = c.Case + "."
		}
		t := Table{
			Title:  strings.TrimSuffix(caseName(c)+": what each policy holds", ".") + ".",
			Header: []string{"policy", "requests", "within SLO %", "answered", "late", "refused", "p99 ms", "cost", "÷ infaas", "machines", "starts", "instances, as the mean over time"},
			Notes:  []string{"cost: the price of all instances, as the mean over time. answered: in time or late."},
		}
		base := slices.Index(o.names(), baselines.INFaaSName)
		for k, name := range o.names() {
			r := results[i][k]
			total, cost, latency := r.Totals(), costOf(r), latencies(r)
			over := or(0, false)
			out.add("cost."+at+name, cost, "", heldBy(r))
			out.add("within_slo_pct."+at+name, 100*(1-total.Violations()), "%", "")
			out.add("slo_violation_pct."+at+name, 100*total.Violations(), "%", "late or refused")
			out.add("machines."+at+name, r.ActiveNodeSeconds/r.Measured.Seconds(), "", "those with an instance, as the mean over time")
			for _, f := range r.Functions {
				out.add("p99_ms."+at+name+"."+f.Name, milliseconds(f.Latency.Quantile(0.99)), "ms", "")
			}
			for _, h := range holdings(r) {
				out.add("instances."+at+name+"."+h.variant, h.mean, "", "the mean over time")
			}
			if base >= 0 && costOf(results[i][base]) > 0 {
				reference := results[i][base].Totals()
				over = cost / costOf(results[i][base])
				if k != base {
					out.add("cost_ratio."+at+name+"_over_infaas", over, "", "")
					out.add("served_ratio."+at+name+"_over_infaas", float64(total.Served)/float64(reference.Served), "", "answered, in time or late")
				}
			}
			t.row(name, fmt.Sprint(total.Requests), 100*(1-total.Violations()), fmt.Sprint(total.Served), fmt.Sprint(total.Missed), fmt.Sprint(total.Rejected),
				milliseconds(latency.Quantile(0.99)), cost, over, r.ActiveNodeSeconds/r.Measured.Seconds(), fmt.Sprint(r.Starts), heldBy(r))
		}
		if cost, ok := fixedCost(c, o.Systems[0]); ok {
			out.add("cost."+at+"fixed", cost, "", "calculated: instances for each function's highest load, for the whole time")
			t.Notes = append(t.Notes, "instances for each function's highest load, for the whole time: "+number(cost)+", calculated")
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}

// costOf is the price of all instances, as the mean over the measured time.
func costOf(r *sim.Result) float64 {
	return r.ResourceSeconds / fleet.Unit / r.Measured.Seconds()
}

// holding is the mean number of instances of a variant.
type holding struct {
	variant string
	mean    float64
}

// holdings lists the variants that were held, the most held first.
func holdings(r *sim.Result) (all []holding) {
	for _, f := range r.Functions {
		for _, c := range f.Configs {
			if c.InstanceSeconds == 0 {
				continue
			}
			name, mean := c.Artefact, c.InstanceSeconds/r.Measured.Seconds()
			if i := slices.IndexFunc(all, func(h holding) bool { return h.variant == name }); i >= 0 {
				all[i].mean += mean
			} else {
				all = append(all, holding{name, mean})
			}
		}
	}
	slices.SortFunc(all, func(a, b holding) int { return cmp.Or(cmp.Compare(b.mean, a.mean), cmp.Compare(a.variant, b.variant)) })
	return all
}

// heldBy is holdings for people, at most five of them.
func heldBy(r *sim.Result) string {
	var parts []string
	for i, h := range holdings(r) {
		if i == 5 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, number(h.mean)+" × "+h.variant)
	}
	return strings.Join(parts, ", ")
}
