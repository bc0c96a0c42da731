package asyfunc

import (
	"fmt"
	"strings"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// report adds the figures, with the paper's in the notes.
func (o *Options) report(r *report.Report, jobs []*job) {
	find := func(m *shadow.Model, policy string, slack int, memory shadow.Accounting) *outcome {
		for _, j := range jobs {
			if !j.macs && j.model == m && j.policy == policy && j.slack == slack && (j.policy != Ours || j.memory == memory) {
				return j.out
			}
		}
		return nil
	}
	best, mean := map[string]float64{}, map[string]float64{}
	for slack := range slacks {
		for _, m := range o.Made {
			for _, p := range policies {
				out := find(m, p.name, slack, shadow.Own)
				if out == nil || p.figure1 {
					continue
				}
				batch := find(m, Batch, slack, shadow.Own)
				change := o.add(r, slack, m, p.name, out, batch, find(m, p.name, slack, shadow.Shared))
				if slack == 0 && p.name != Batch {
					best[p.name] = min(best[p.name], change)
					mean[p.name] += change / float64(len(o.Made))
				}
			}
		}
		o.figure1(r, slack, find)
	}
	for _, p := range policies {
		if _, ok := mean[p.name]; ok {
			r.Add("memory_change_pct.best."+p.name, best[p.name], "%", paperMemory(p.name))
			r.Add("memory_change_pct.mean."+p.name, mean[p.name], "%", "over the models")
		}
	}
	o.printed(r, jobs, find)
	o.about(r)
}

// printed adds AsyFunc with ρ as printed, which weighs a body's memory by its multiply-adds. It
// then prefers small bodies, as BATCH does, and saves less.
func (o *Options) printed(r *report.Report, jobs []*job, find finder) {
	for _, j := range jobs {
		batch := find(j.model, Batch, 0, shadow.Own)
		if !j.macs || batch == nil || batch.own == 0 {
			continue
		}
		name := strings.ReplaceAll(j.model.Name, ".", "-") + "." + j.policy
		r.Add("rho_macs.memory_change_pct."+name, 100*(j.out.own/batch.own-1), "%", fmt.Sprintf("ρ·m are the model's GMACs; %.1f bodies, %d shadows", j.out.bodies, j.out.shadows))
		r.Add("rho_macs.slo_violation_pct."+name, j.out.violations, "%", "")
		r.Add("rho_macs.cpu_utility_pct."+name, j.out.utility, "%", "")
	}
}

// finder finds the outcome of a run, nil if there was none.
type finder func(m *shadow.Model, policy string, slack int, memory shadow.Accounting) *outcome

// paperMemory is what the paper prints of a policy's memory.
func paperMemory(policy string) string {
	if policy == AsyFunc {
		return "paper: best −23.4 (Fig. 10)"
	}
	return ""
}

// add adds the figures of one model under one policy, and returns the change of memory.
func (o *Options) add(r *report.Report, slack int, m *shadow.Model, policy string, own, batch, shared *outcome) float64 {
	prefix, name := slacks[slack].prefix, strings.ReplaceAll(m.Name, ".", "-")+"."+policy
	const mib = 1 << 20
	note := fmt.Sprintf("%.0f MiB, %.1f bodies, %d shadows", own.own/mib, own.bodies, own.shadows)
	if policy == Ours {
		note += fmt.Sprintf(", %d whole instances started", own.helps)
	}
	if own.short > 0 {
		note += fmt.Sprintf("; %d times no room", own.short)
	}
	change := 0.0
	if batch.own > 0 {
		change = 100 * (own.own/batch.own - 1)
		r.Add(prefix+"memory_change_pct."+name, change, "%", note)
		note = fmt.Sprintf("%.0f MiB, %.1f bodies, %d shadows", shared.shared/mib, shared.bodies, shared.shadows)
		r.Add(prefix+"memory_change_pct.shared."+name, 100*(shared.shared/batch.shared-1), "%", note)
	}
	r.Add(prefix+"slo_violation_pct."+name, own.violations, "%", paperViolations(policy))
	if policy == Ours {
		r.Add(prefix+"slo_violation_pct.shared."+name, shared.violations, "%", "")
	}
	utility := ""
	if policy == AsyFunc {
		utility = "paper: up to 96, 12 above batch (Fig. 12)"
	}
	r.Add(prefix+"cpu_utility_pct."+name, own.utility, "%", utility)
	return change
}

func paperViolations(policy string) string {
	if policy == AsyFunc {
		return "paper: no significant increase over batch (Fig. 13)"
	}
	return ""
}

// figure1 adds the policies of Fig. 1, with AsyFunc and ours on the same load.
func (o *Options) figure1(r *report.Report, slack int, find finder) {
	prefix := slacks[slack].prefix
	opt := find(o.Made[0], Optimal, slack, shadow.Own)
	notes := map[string]string{OnDemand: "paper 10.52", LastValue: "paper 5.46", Optimal: "paper 0"}
	for _, name := range []string{OnDemand, LastValue, TimesLast, Optimal, Ours} {
		out := find(o.Made[0], name, slack, shadow.Own)
		if out == nil {
			continue
		}
		r.Add(prefix+"slo_violation_pct.fig1."+name, out.violations, "%", strings.TrimPrefix(fmt.Sprintf("%s; %.2f instances", notes[name], out.bodies), "; "))
		if opt != nil && opt.bodies > 0 && name != Optimal {
			note := ""
			if name == TimesLast {
				note = "paper 1.3"
			}
			r.Add(prefix+"instances_over_opt.fig1."+name, out.bodies/opt.bodies, "", note)
		}
	}
}

// about adds what the figures are of.
func (o *Options) about(r *report.Report) {
	for _, m := range o.Made {
		name := strings.ReplaceAll(m.Name, ".", "-")
		r.Add("load_ms."+name, o.Law.LoadFixed+m.Load(m.All()), "ms", "the whole model into an empty instance")
		r.Add("slo_ms."+name, m.Time(0, len(m.Blocks), maxBatch, 1000*maxCores), "ms", fmt.Sprintf("t on %d cores of %d rows; %.1f of one row, %.0f on one core", maxCores, maxBatch,
			m.Time(0, len(m.Blocks), 1, 1000*maxCores), m.Time(0, len(m.Blocks), 1, 1000)))
	}
	r.Add("law.start_ms", o.Law.Start, "ms", "a container and its libraries, before a model is loaded; the paper prints none")
	r.Add("requests", float64(len(o.Load.Times)), "", fmt.Sprintf("%s: %.1f per second", o.Load.Name, o.Load.Mean()))
	r.Add("nodes", float64(len(o.Nodes)), "", fmt.Sprintf("the first has %d cores and %.1f GB", o.Nodes[0].Cores, float64(o.Nodes[0].Memory)/1e9))
}
