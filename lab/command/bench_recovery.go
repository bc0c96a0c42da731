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
		Short: "How functions fare while something else takes the cores, and how soon they are well again",
		Long: `recovery deploys the demo's two functions at a provider of its own and loads them
with Poisson arrivals. After a while, processes that only compute are started, one
for each core; then they are ended, and the load goes on. It prints what share of
the requests was answered, which within the SLO, and the 99th percentile, window by
window, and how many seconds after the end of the loops both functions answer 95 %
within the SLO again. Latencies are from the intended time of sending.`,
		Example: `  faas-infer-lab bench recovery
  faas-infer-lab bench recovery --rate 100 --busy 60s --loops 8 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return bench.RunRecovery(ctx, o, b)
	})
	f := c.Flags()
	f.Float64Var(&b.Rate, "rate", 400, "requests per second for each function")
	f.DurationVar(&b.SLO, "slo", 50*time.Millisecond, "latency objective of both")
	f.DurationVar(&b.Before, "before", 30*time.Second, "how long they are left in peace")
	f.DurationVar(&b.Busy, "busy", 30*time.Second, "how long they are disturbed")
	f.DurationVar(&b.After, "after", time.Minute, "how long they have to recover")
	f.IntVar(&b.Loops, "loops", runtime.NumCPU(), "how many processes disturb them")
	f.DurationVar(&b.Window, "window", 10*time.Second, "the time over which answers are summed up")
	return c
}

// newSpinCommand is one of the processes that disturb.
func newSpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "spin",
		Short:   "Compute on one core until it is ended",
		Example: `  faas-infer-lab bench spin`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bench.Spin(cmd.Context())
			return nil
		},
	}
}
