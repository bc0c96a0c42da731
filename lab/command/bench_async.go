package command

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/bench"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newAsyncBenchCommand() *cobra.Command {
	var a bench.Async
	c := benchCommand(&cobra.Command{
		Use:   "async",
		Short: "Asynchronous requests: accepted per second, batched against one at a time, lost over kills",
		Long: `async queues requests through the stock gateway, which publishes them to the
provider over NATS. It measures how many are accepted per second while they are
executed one at a time, as OpenFaaS's own queue-worker does, then how many are
executed per second that way and many at a time, and last how many of --messages
requests never come back while the provider is killed with SIGKILL --kills times.

The gateway needs ports 8080 and 8082, and is built by "make gateway".`,
		Example: `  faas-infer-lab bench async
  faas-infer-lab bench async --messages 10000 --kills 2 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if a.SLO <= 0 || a.Queued < 1 || a.Messages < 1 || a.Kills < 0 {
			return nil, errors.New("--slo, --queued and --messages must be positive, and --kills not negative")
		}
		return bench.RunAsync(ctx, o, a)
	})
	f := c.Flags()
	f.StringVar(&a.Model, "model", "dssm", "an architecture of faas-infer model make")
	f.DurationVar(&a.SLO, "slo", 50*time.Millisecond, "its latency objective")
	f.IntVar(&a.Queued, "queued", 60000, "requests that wait when executing them is timed")
	f.IntVar(&a.Messages, "messages", 100000, "requests that are queued while the provider is killed")
	f.IntVar(&a.Kills, "kills", 5, "how often it is killed")
	return c
}
