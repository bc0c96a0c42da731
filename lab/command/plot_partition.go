package command

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
)

// newPlotPartitionCommand returns "faas-infer-lab plot partition".
func newPlotPartitionCommand() *cobra.Command {
	var platform, out string
	var slo time.Duration
	c := &cobra.Command{
		Use:   "partition NAME",
		Short: "Draw how a model of the zoo is cut over several functions",
		Long: `partition draws the plan of "faas-infer model partition" for a model of the zoo on one of Gillis'
platforms, round by round: the time beside that of the same layers in one piece, and the memory.
With --slo the plan is the cheapest within it on average, otherwise the fastest.`,
		Example: `  faas-infer-lab plot partition vgg-16
  faas-infer-lab plot partition vgg-11 --platform knix --slo 500ms --out vgg-11.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			on, known := partition.Named(platform)
			if !known {
				return fmt.Errorf("--platform is %q: give %s", platform, strings.Join(partition.Builtin(), " or "))
			}
			if slo < 0 {
				return fmt.Errorf("--slo is %v: give a time such as 500ms, or 0 for the fastest plan", slo)
			}
			m, err := zoo.Make(args[0], 1)
			if err != nil {
				return err
			}
			planned, err := partitioning.Plan(c.Context(), m, on, partitioning.Goal{
				Cheapest: slo > 0, SLO: partition.SLO{Ms: float64(slo) / float64(time.Millisecond)},
				Progress: report.ProgressBar(os.Stderr, "predicting layers"),
			})
			if err != nil {
				return err
			}
			return plotPlan(out, planned, on)
		},
	}
	c.Flags().StringVar(&platform, "platform", "lambda", "the platform: "+strings.Join(partition.Builtin(), " or "))
	c.Flags().DurationVar(&slo, "slo", 0, "plan for the least cost within this latency (0: for the least latency)")
	c.Flags().StringVar(&out, "out", "plan.svg", "file for the drawing (SVG)")
	return c
}

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
