package figure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
	"github.com/faas-infer/faas-infer/variant"
)

// boundEvery is the time between two optima.
const boundEvery = time.Second

// accurate compares functions that prefer accurate answers with the same functions if only their
// most accurate variants serve, and with the optimum of a linear program that knows the load
// (Proteus, ASPLOS 2024). All have the same machines.
func accurate(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	out := &Outcome{}
	for _, c := range cases {
		best, names := *c, []string{"", "most accurate only, "}
		best.Functions = slices.Clone(c.Functions)
		for i := range best.Functions {
			best.Functions[i].Variants = mostAccurate(c.Functions[i].Variants)
		}
		results, err := o.matrix(ctx, []*scenario.Scenario{c, &best}, o.Systems)
		if err != nil {
			return nil, err
		}
		t := Table{
			Title:  caseName(c) + ": accurate answers as far as the machines carry them.",
			Header: []string{"policy", "requests", "within SLO %", "late", "refused", "accuracy %", "instances, as the mean over time"},
		}
		for k, name := range o.names() {
			for i, r := range [][]*sim.Result{results[0], results[1]} {
				total := r[k].Totals()
				mean, _ := accuracyOf(c, r[k])
				t.row(names[i]+name, total.Requests, 100*(1-total.Violations()), total.Missed, total.Rejected, mean, heldBy(r[k]))
			}
		}
		k := slices.Index(o.names(), systems.Default)
		if k >= 0 {
			bound, least, err := accuracyBounds(c, o.Systems[k])
			if err != nil {
				return nil, err
			}
			mean, lowest := accuracyOf(c, results[0][k])
			ours, alone := results[0][k].Totals(), results[1][k].Totals()
			out.add("accuracy_scaling.served_ratio", float64(ours.Served-ours.Missed)/float64(alone.Served-alone.Missed), "", "in time, over the most accurate variants alone")
			out.add("accuracy_scaling.within_slo_pct", 100*(1-ours.Violations()), "%", "")
			out.add("accuracy_scaling.share_of_bound", mean/bound, "", "mean accuracy over that of an optimum that knows the load")
			out.add("accuracy_scaling.share_of_rise", (mean-least)/(bound-least), "", "what it adds to the cheapest variants' accuracy, over what the optimum adds")
			out.add("accuracy_scaling.lowest", lowest, "%", "of all answers")
			t.Notes = []string{fmt.Sprintf("optimum, each %v, with the load known: %s %%; the cheapest variants alone: %s %%", boundEvery, number(bound), number(least))}
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}

// mostAccurate returns the variants of the highest accuracy.
func mostAccurate(all []variant.Variant) []variant.Variant {
	most := 0.0
	for _, v := range all {
		most = max(most, v.Accuracy)
	}
	return slices.DeleteFunc(slices.Clone(all), func(v variant.Variant) bool { return v.Accuracy < most })
}

// accuracyOf returns the mean and the lowest accuracy of all answers.
func accuracyOf(c *scenario.Scenario, r *sim.Result) (mean, lowest float64) {
	sum, n := 0.0, 0.0
	lowest = math.Inf(1)
	for i, f := range r.Functions {
		for _, x := range f.Configs {
			at := slices.IndexFunc(c.Functions[i].Variants, func(v variant.Variant) bool { return v.Name == x.Artefact })
			if at < 0 || x.Requests == 0 {
				continue
			}
			accuracy := c.Functions[i].Variants[at].Accuracy
			sum, n, lowest = sum+accuracy*float64(x.Requests), n+float64(x.Requests), min(lowest, accuracy)
		}
	}
	return sum / n, lowest
}

// accuracyBounds returns the mean accuracy of the optimum over the measured time, and that of the
// cheapest variants. The optimum has the load of each moment, fractions of instances that are
// always busy, and loads in no time.
func accuracyBounds(c *scenario.Scenario, system systems.System) (bound, least float64, err error) {
	setup, err := c.Setup(system, 1, c.Seed)
	if err != nil {
		return 0, 0, err
	}
	machines, sum := 0.0, 0.0
	for _, m := range c.Cluster.Machines {
		machines += float64(m.Count) * m.Price
	}
	for at := c.Warmup; at < c.Duration; at += boundEvery {
		loads := make([]float64, len(c.Functions))
		for i := range loads {
			rate, ok := setup.Functions[i].Arrivals.(sim.Rate)
			if !ok {
				return 0, 0, fmt.Errorf("%s: the load of %s is not known ahead: give it a rate", c.Name, c.Functions[i].Name)
			}
			loads[i] = rate.Rate(at)
			sum += loads[i]
		}
		bound += optimum(c.Functions, loads, machines)
		least += cheapest(c.Functions, loads)
	}
	return bound / sum, least / sum, nil
}

// optimum is the highest sum of answers per second times their accuracy with which all load is
// answered on machines of a price. It is the optimum of
// a linear program with one constraint, so the least of its dual over the constraint's price. Each
// price gives a bound, the least of them is the optimum.
//
// For example 10 requests/s cost 1 each at 70 % and 3 each at 80 %, on machines for 20. At a price
// of 5 for each unit both are worth 65, which makes 10·65 + 20·5 = 750: half of the requests have
// 80 %.
func optimum(functions []scenario.Function, loads []float64, machines float64) float64 {
	answered := func(price float64) float64 {
		sum := machines * price
		for i, f := range functions {
			best := math.Inf(-1)
			for _, v := range f.Variants {
				if v.Latency <= f.SLO {
					best = max(best, v.Accuracy-price*v.PerRequest())
				}
			}
			sum += loads[i] * best
		}
		return sum
	}
	low, high := 0.0, 1e3
	for range 200 {
		third := (high - low) / 3
		if answered(low+third) < answered(high-third) {
			high -= third
		} else {
			low += third
		}
	}
	return answered((low + high) / 2)
}

// cheapest is the sum of answers per second times their accuracy if the variants answer that cost
// least for each request.
func cheapest(functions []scenario.Function, loads []float64) (sum float64) {
	for i, f := range functions {
		in := slices.DeleteFunc(slices.Clone(f.Variants), func(v variant.Variant) bool { return v.Latency > f.SLO })
		if len(in) == 0 {
			continue
		}
		sum += loads[i] * slices.MinFunc(in, func(a, b variant.Variant) int { return cmp.Compare(a.PerRequest(), b.PerRequest()) }).Accuracy
	}
	return sum
}
