package command

import (
	"fmt"

	"github.com/faas-infer/faas-infer/command/partitioning"
	"github.com/faas-infer/faas-infer/command/report/plot"
	"github.com/faas-infer/faas-infer/partition"
)

// plotPlan draws a plan round by round: the time beside that of the same layers in one piece,
// and what each function holds beside the whole model.
func plotPlan(file string, p *partitioning.Planned, on *partition.Platform) error {
	const mib = 1 << 20
	var names []string
	var whole, compute, rest, weights, activations []float64
	for i, r := range p.Rounds {
		names = append(names, fmt.Sprintf("%d: %s", i+1, r.Option.Name))
		one, longest, heaviest, most := p.Uncut(r.First, r.End), 0.0, int64(0), int64(0)
		for _, part := range r.Option.Parts {
			longest, heaviest, most = max(longest, part.Compute), max(heaviest, part.Weights), max(most, part.Activations)
		}
		whole, compute, rest = append(whole, one), append(compute, longest), append(rest, max(0, r.Time.Mean-longest))
		weights, activations = append(weights, float64(heaviest)/mib), append(activations, float64(most)/mib)
	}
	times := plot.Panel{
		Title: "Time of a round", X: plot.Axis{Label: "round: cut"}, Y: plot.Axis{Label: "time (ms)"}, Categories: names, Stacked: true,
		Series: []plot.Series{plot.Bar("longest part", 0, false, compute...), plot.Bar("transfers and waiting", 1, false, rest...)},
	}
	pieces := plot.Panel{
		Title: "The same layers in one piece", X: plot.Axis{Label: "round: cut"}, Y: plot.Axis{Label: "time (ms)"}, Categories: names,
		Series: []plot.Series{plot.Bar("one function", 2, false, whole...)},
	}
	memory := plot.Panel{
		Title: "Memory of the largest part", X: plot.Axis{Label: "round: cut"}, Y: plot.Axis{Label: "memory (MiB)"}, Categories: names, Stacked: true,
		Series: []plot.Series{plot.Bar("weights", 3, false, weights...), plot.Bar("activations", 4, false, activations...)},
	}
	return plot.WriteFile(file, plot.Figure{
		Title: fmt.Sprintf("%.0f ms on %d functions of %s, %.0f ms in one piece", p.Time.Mean, p.Functions(), on.Name, p.Whole),
		Note:  "Predicted means (Gillis §IV-A).", Panels: []plot.Panel{times, pieces, memory}, Columns: 3,
	})
}
