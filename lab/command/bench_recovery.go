package command

import (
	"context"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/bench"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newRecoveryCommand() *cobra.Command {
	var b bench.Recovery
	c := benchCommand(&cobra.Command{
		Use:   "recovery",
		Short: "Measure functions while other processes take the cores, and how soon they recover",
		Long: `recovery starts a provider, deploys the demo's two functions, and loads them with
Poisson arrivals. After --before it starts processes that only compute, one for each
core. After --busy it ends them; the load continues for --after. For each window it
prints the share of the requests that were answered, the share answered within the
SLO, and the 99th percentile. It also prints how many seconds after the end of these
processes both functions answer 95 % within the SLO again. Latencies count from the
intended time of sending.`,
		Example: `  faas-infer-lab bench recovery
  faas-infer-lab bench recovery --rate 100 --busy 60s --loops 8 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.RunRecovery(ctx, o, b)
	})
	f := c.Flags()
	f.Float64Var(&b.Rate, "rate", 400, "requests per second for each function")
	f.DurationVar(&b.SLO, "slo", 50*time.Millisecond, "latency objective of both")
	f.DurationVar(&b.Before, "before", 30*time.Second, "how long the functions run undisturbed")
	f.DurationVar(&b.Busy, "busy", 30*time.Second, "how long the functions are disturbed")
	f.DurationVar(&b.After, "after", time.Minute, "how long the functions have to recover")
	f.IntVar(&b.Loops, "loops", runtime.NumCPU(), "how many processes disturb the functions")
	f.DurationVar(&b.Window, "window", 10*time.Second, "length of a window; each is one row of the result")
	return c
}

// newSpinCommand returns "bench spin", of which "bench recovery" starts one per
// disturbing process.
func newSpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "spin",
		Short:   "Compute on one core until stopped",
		Example: `  faas-infer-lab bench spin`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bench.Spin(cmd.Context())
			return nil
		},
	}
}
