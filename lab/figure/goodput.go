package figure

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// goodput finds the highest load of each function alone on the machines under each system, at which 99 % of the
// requests are answered within the SLO (Symphony §5), and how much of it faas-infer has of each other system's.
func goodput(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	n := len(o.Systems)
	peaks := make([]*peak, len(cases)*n)
	for i := range peaks {
		peaks[i] = &peak{scenario: cases[i/n], system: o.Systems[i%n]}
	}
	err := o.each(ctx, len(peaks), func(ctx context.Context, i int, part func(float64)) error {
		return peaks[i].find(ctx, o, part)
	})
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	t := Table{
		Title:  "The highest rate at which each function alone answers 99 % of its requests within its SLO, in requests/s.",
		Header: append([]string{"function", "SLO ms", "bound"}, o.names()...),
		Notes:  []string{"bound: no policy can serve more on these machines (linear program; no request waits)."},
	}
	for i, c := range cases {
		row := []any{caseName(c), c.Functions[0].SLO, peaks[i*n].bound}
		for _, p := range peaks[i*n : (i+1)*n] {
			row = append(row, p.rps)
			out.add(fmt.Sprintf("goodput.%s.%s", p.system.Name, caseName(c)), p.rps, "1/s", "")
		}
		t.row(row...)
	}
	out.Tables = append(out.Tables, t)
	for k, s := range o.Systems {
		compareGoodput(out, peaks, k, n, s.Name)
	}
	return out, nil
}

// compareGoodput adds faas-infer's goodput over that of the k-th of n systems, and what work each system does.
func compareGoodput(out *Outcome, peaks []*peak, k, n int, name string) {
	ours := slices.IndexFunc(peaks[:n], func(p *peak) bool { return p.system.Name == systems.Default })
	var ratios, batches []float64
	for i := k; i < len(peaks); i += n {
		if p := peaks[i]; p.rps > 0 {
			batches = append(batches, p.used().batch)
			if ours >= 0 {
				ratios = append(ratios, peaks[i-k+ours].rps/p.rps)
			}
		}
	}
	out.add("mean_batch."+name, middle(batches), "requests", "median over the functions, at the highest load")
	if ours < 0 || name == systems.Default {
		return
	}
	out.add("ratio."+systems.Default+"_over_"+name+".worst", slices.Min(append(ratios, math.Inf(1))), "", "of all functions")
	out.add("ratio."+systems.Default+"_over_"+name+".median", middle(ratios), "", "of all functions")
}

// middle is the median, NaN of none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
