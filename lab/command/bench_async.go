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
		Short: "Measure asynchronous requests: accepted per second, batched against one at a time, lost over kills",
		Long: `async queues requests through the stock gateway, which publishes them to the
provider over NATS. First it measures how many are accepted per second while they are
executed one at a time, as OpenFaaS's own queue-worker does. Then it measures how many
are executed per second one at a time and many at a time. Last it kills the provider
with SIGKILL --kills times and counts how many of --messages requests never come back.

The gateway needs ports 8080 and 8082. Build it with "make gateway".`,
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
	f.DurationVar(&a.SLO, "slo", 50*time.Millisecond, "latency objective of the model")
	f.IntVar(&a.Queued, "queued", 60000, "requests in the queue when their execution is timed")
	f.IntVar(&a.Messages, "messages", 100000, "requests to queue while the provider is killed")
	f.IntVar(&a.Kills, "kills", 5, "how often to kill the provider")
	return c
}
