package command

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/attainment"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newAttainmentCommand() *cobra.Command {
	b := attainment.Bench{Progress: report.ProgressBar(os.Stderr, "scenarios")}
	c := benchCommand(&cobra.Command{
		Use:   "attainment",
		Short: "Measure whether functions keep their objectives under real loads, against the best fixed setting",
		Long: `attainment starts a provider without any profiles, deploys functions as users do, and
plays scenarios: models and payloads under steady and changing loads, alone, several
together, beside a new model, and while another process takes the cores. The provider
and all that it starts have one core, the load generator has another. Loads are
proportional to the rate that one instance with the whole core answers within the
objective.

It plays each scenario again with fixed settings of the same functions by the same
dispatcher: one instance or several, each with a quarter of the core up to all of it,
and with batches as large as the objective allows. The best of them is what an autoscaler
could reach that knew the load in advance.

Results:
  within_slo_pct.SCENARIO     share of the requests that were answered within the
                              objective, without the first two seconds after a change
  goodput_over_best.SCENARIO  goodput, over that of the best fixed setting
  cores.SCENARIO              cores that the instances hold on average
  cores_over_best.SCENARIO    those cores, over the fewest with which a fixed setting
                              has as much goodput as the best
  settle_s.SCENARIO           time from a change until the objective is met again
  first_answer_s.MODEL        time from the deployment of a new model to its first answer
and totals, whose notes say what they should reach. It takes about half an hour, or some
hours with --full.

With --policies it plays each scenario with each of these batching policies instead, and
prints within_slo_pct and cores as above, and for each SCENARIO.POLICY
  median_ms                   median latency
  cpu_ms_per_answer           CPU time of the instances for each answer within the objective`,
		Example: `  faas-infer-lab bench attainment
  faas-infer-lab bench attainment --only 'step|overload' --json
  faas-infer-lab bench attainment --only 'steady' --policies shared,deferred`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		for _, name := range b.Policies {
			if err := batching.CheckName(name); err != nil {
				return nil, fmt.Errorf("--policies: %w", err)
			}
		}
		if b.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return attainment.Run(ctx, o, b)
	})
	f := c.Flags()
	f.BoolVar(&b.Full, "full", false, "play every model with every payload under every load")
	f.StringVar(&b.Only, "only", "", "play only the scenarios whose names match this regular expression; first_answer, json and gateway are names too")
	f.StringSliceVar(&b.Policies, "policies", nil, "batching policies to compare in the scenarios, in place of fixed settings")
	f.Uint64Var(&b.Seed, "seed", 1, "seed of the arrival times")
	return c
}
