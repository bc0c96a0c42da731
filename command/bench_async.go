package command

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/bench/async"
	"github.com/faas-infer/faas-infer/bench/rig"
	"github.com/faas-infer/faas-infer/report"
)

func newAsyncBenchCommand() *cobra.Command {
	var a async.Bench
	c := benchCommand(&cobra.Command{
		Use:   "async",
		Short: "Asynchronous requests: accepted per second, batched against one at a time, lost over kills",
		Long: `async queues requests through the stock gateway, which publishes them to the
provider over NATS. It measures how many are accepted per second while they are
executed one at a time, as OpenFaaS's own queue-worker does, then how many are
executed per second that way and many at a time, and last how many of --messages
requests never come back while the provider is killed with SIGKILL --kills times.

The gateway needs ports 8080 and 8082, and is built by "make gateway".`,
		Example: `  faas-infer bench async
  faas-infer bench async --messages 10000 --kills 2 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if a.SLO <= 0 || a.Queued < 1 || a.Messages < 1 || a.Kills < 0 {
			return nil, errors.New("--slo, --queued and --messages must be positive, and --kills not negative")
		}
		return async.Run(ctx, o, a)
	})
	f := c.Flags()
	f.StringVar(&a.Model, "model", "dssm", "an architecture of faas-infer model make")
	f.DurationVar(&a.SLO, "slo", 50*time.Millisecond, "its latency objective")
	f.IntVar(&a.Queued, "queued", 60000, "requests that wait when executing them is timed")
	f.IntVar(&a.Messages, "messages", 100000, "requests that are queued while the provider is killed")
	f.IntVar(&a.Kills, "kills", 5, "how often it is killed")
	return c
}

// benchGateway is rig.Options.Gateway.
func benchGateway(ctx context.Context, provider, nats, dir string) (url string, stop func(), err error) {
	secrets := filepath.Join(dir, "gateway-secrets")
	if _, _, err := basicAuth(secrets); err != nil {
		return "", nil, err
	}
	g, err := startGateway(ctx, gatewayPlan{provider: provider, nats: nats, secrets: secrets, logFile: filepath.Join(dir, "gateway.log")})
	if err != nil {
		return "", nil, err
	}
	return gatewayURL, g.stop, nil
}
