package command

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/promise"
)

func newPromiseCommand() *cobra.Command {
	b := promise.Bench{Log: os.Stderr}
	var asJSON bool
	c := &cobra.Command{
		Use:   "promise",
		Short: "Measure how well stated percentiles are kept, on a virtual clock, beside other predictors and a clairvoyant plan",
		Long: `promise simulates the scenarios of "bench attainment", repeated until there are enough
requests, and further ones: a neighbour that comes and goes, a processor whose clock falls, a
machine that drifts, predictions of half and of twice the real times and of another machine, and
a machine that is too small. Engine, batching, corrections and steering are the provider's own.
The models' real times are simple laws, as docs/design/promise.md says.

` + namedList("Ways to know times and capacity", promise.Ways()) + `
The clairvoyant plan knows the times of every moment, the load ahead, and the smallest multiple of
it with which the percentile is kept. Its instances start at once.

Results, by way, percentile and scenario:
  kept_pct                part of the requests that were answered in time
  cores_over_clairvoyant  cores that instances hold, over those of the clairvoyant plan
  first_violation_s       length of the first time in which more requests missed the objective
                          than percentile and chance allow
and totals by way. It takes some minutes.`,
		Example: `  faas-infer-lab bench promise --json
  faas-infer-lab bench promise --only 'neighbour|slow' --percentile 99 --requests 20000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.Requests < 1000 {
				return fmt.Errorf("--requests %d: give 1000 or more", b.Requests)
			}
			for _, p := range b.Percentiles {
				if !(p >= 50 && p <= 99.9) {
					return fmt.Errorf("--percentile %g: give percentiles from 50 to 99.9", p)
				}
			}
			b.Progress = report.ProgressBar(os.Stderr, "promises")
			r, err := promise.Run(cmd.Context(), b)
			if err != nil {
				return err
			}
			return r.Print(cmd.OutOrStdout(), asJSON)
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.IntVar(&b.Requests, "requests", 100_000, "requests of each scenario")
	f.DurationVar(&b.Least, "least", 10*time.Minute, "least simulated time of each scenario")
	f.Float64SliceVar(&b.Percentiles, "percentile", []float64{95, 99, 99.9}, "stated percentiles")
	f.StringVar(&b.Only, "only", "", "simulate only the scenarios whose names match this regular expression")
	f.StringSliceVar(&b.Ways, "way", nil, "ways to compare (default: all)")
	f.Uint64Var(&b.Seed, "seed", 1, "seed of arrivals and times")
	return c
}
