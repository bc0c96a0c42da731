package fidelity

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure"
)

// measure is one compared quantity.
type measure struct {
	name, unit, header string
	of                 func(o Observed) float64
}

var measures = []measure{
	{"mean_ms", "ms", "mean ms", func(o Observed) float64 { return milliseconds(o.Mean) }},
	{"p99_ms", "ms", "p99 ms", func(o Observed) float64 { return milliseconds(o.P99) }},
	{"batch", "requests", "batch", func(o Observed) float64 { return o.Batch }},
	{"within_slo", "share", "within SLO", func(o Observed) float64 { return o.Within }},
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// difference returns by how many % the simulated value is above the real one.
func difference(real, simulated float64) float64 {
	if real == simulated {
		return 0
	}
	return 100 * (simulated/real - 1)
}

// Results returns the figures of a comparison: MEASURE.real.FUNCTION.LOAD and
// MEASURE.simulated.FUNCTION.LOAD with the load in % of the capacity, the difference
// of the two in %, and the largest difference of each measure.
func Results(pairs []Pair) []report.Result {
	var all []report.Result
	worst := map[string]float64{}
	for _, p := range pairs {
		where := fmt.Sprintf("%s.%.0f", strings.ReplaceAll(p.Function.Name, "-", "_"), 100*p.Load)
		all = append(all, report.Result{Name: "rate." + where, Value: p.Rate, Unit: "requests/s", Note: fmt.Sprintf("%d requests", p.Real.Requests)},
			report.Result{Name: "drift_pct." + where, Value: 100 * p.Drift, Unit: "%", Note: "of execution times, from before the comparison to after it"})
		for _, m := range measures {
			real, simulated := m.of(p.Real), m.of(p.Simulated)
			d := difference(real, simulated)
			worst[m.name] = max(worst[m.name], math.Abs(d))
			all = append(all, report.Result{Name: m.name + ".real." + where, Value: real, Unit: m.unit},
				report.Result{Name: m.name + ".simulated." + where, Value: simulated, Unit: m.unit},
				report.Result{Name: "difference_pct." + m.name + "." + where, Value: d, Unit: "%"})
		}
	}
	for _, m := range measures {
		all = append(all, report.Result{Name: "worst_difference_pct." + m.name, Value: worst[m.name], Unit: "%"})
	}
	return all
}

// Table returns the table of a comparison.
func Table(pairs []Pair) figure.Table {
	t := figure.Table{Title: "On this machine → simulated", Header: []string{"function", "load", "requests/s"}}
	for _, m := range measures {
		t.Header = append(t.Header, m.header, "differs")
	}
	t.Header = append(t.Header, "configs")
	for _, p := range pairs {
		row := []string{p.Function.Name, fmt.Sprintf("%.0f %%", 100*p.Load), fmt.Sprintf("%.0f", p.Rate)}
		for _, m := range measures {
			real, simulated := m.of(p.Real), m.of(p.Simulated)
			row = append(row, fmt.Sprintf("%.3g → %.3g", real, simulated), fmt.Sprintf("%+.1f %%", difference(real, simulated)))
		}
		t.Rows = append(t.Rows, append(row, configs(p.RealConfigs)+" → "+configs(p.SimulatedConfigs)))
	}
	t.Notes = []string{
		"Same requests at the same instants, same predictions, same policies. What the simulator knows of this machine",
		"was measured before and after, under other requests: executions alone and how much longer they take under load,",
		"and the ways from the client to the instance and back.",
	}
	for _, p := range pairs {
		if math.Abs(p.Drift) > maxDrift {
			t.Notes = append(t.Notes, fmt.Sprintf("%s at %.0f %%: execution times changed by %+.0f %% meanwhile. Something else runs on this machine, and the figures tell of that.", p.Function.Name, 100*p.Load, 100*p.Drift))
		}
	}
	return t
}

// maxDrift is the largest relative change of execution times during a comparison without a
// warning. On a machine without other work, the change is smaller.
const maxDrift = 0.1

func configs(all []cluster.Config) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, c := range all {
		names = append(names, c.String())
	}
	return strings.Join(names, " ")
}
