package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/attainment"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newAttainmentCommand() *cobra.Command {
	b := attainment.Bench{Progress: report.ProgressBar(os.Stderr, "scenarios")}
	c := benchCommand(&cobra.Command{
		Use:   "attainment",
		Short: "Whether functions keep their objectives under real loads, beside the best fixed setting",
		Long: `attainment starts a provider of its own that knows nothing, deploys functions as users
do, and plays scenarios: models and payloads under steady and changing loads, alone,
several together, beside a new model, and while something else takes the cores. The
provider and all that it starts have one core, the load generator has another. Loads are
in proportion to what one instance with the whole core answers within the objective.

Each scenario is played again with fixed settings of the same functions by the same
dispatcher: one instance or several, of a quarter of the core up to all of it, with
batches as large as the objective allows. The best of them is what any autoscaler could
have had that knew the load in advance.

Results: within_slo_pct.SCENARIO, the share of the requests that were answered within the
objective, but for the first two seconds after a change; goodput_over_best.SCENARIO;
cores.SCENARIO, held by instances on average, and cores_over_best.SCENARIO, over the
fewest with which a fixed setting has as much goodput as the best; settle_s.SCENARIO,
from a change until all is well; first_answer_s.MODEL; and totals, with what is to be
reached in their notes. It takes about half an hour, with --full some hours.`,
		Example: `  faas-infer-lab bench attainment
  faas-infer-lab bench attainment --only 'step|overload' --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if b.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return attainment.Run(ctx, o, b)
	})
	f := c.Flags()
	f.BoolVar(&b.Full, "full", false, "play every model with every payload under every load")
	f.StringVar(&b.Only, "only", "", "play only the scenarios whose names match this regular expression, and of first_answer, json and gateway")
	f.Uint64Var(&b.Seed, "seed", 1, "settles when requests come")
	return c
}
