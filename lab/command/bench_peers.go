package command

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newPeersCommand() *cobra.Command {
	b := peers.Bench{Progress: report.ProgressBar(os.Stderr, "searches")}
	c := benchCommand(&cobra.Command{
		Use:   "peers",
		Short: "Find the highest rate within the SLO, against six other model servers",
		Long: `peers serves the same ONNX files with this provider, MLServer, BentoML, Ray Serve,
KServe's own server, LitServe and Triton, one after the other. It finds the highest
open-loop Poisson rate at which 99 % of the requests are answered correctly within the
SLO: 50 ms for mnist, dssm and lstm-2365, 200 ms for minilm, 400 ms for resnet-50, 1 s for
bert. Latency counts from the intended time of sending.

All processes of a server share one core, the load generator has the other. The same
search finds every rate. It begins with the rate at which one request follows the other,
and goes up or down by a factor of 2 until one rate is met and one is missed. Then it
halves the interval until 4 % are left or the budget is spent. A trial has at least 600
requests. All trials of one rate have the same arrivals; another rate spreads or squeezes
them. A trial ends as soon as its rate is missed, and a missed rate is offered twice.

For faas-infer, it deploys a function with its SLO and no other option, and begins once
the model is measured. Each peer is the small service that its documents describe, with
the ONNX Runtime that faas-infer uses. It is tuned over a grid of largest batch, maximum
wait of a batch, workers and protocol; the notes name the best setting. A peer's rate
counts only if its answers equal faas-infer's up to rounding.

Results:
  rps.MODEL.PAYLOAD.WHO       requests/s
  refused_early_pct.MODEL.PAYLOAD
                              requests that faas-infer refused and that it could have
                              answered within the SLO, had it executed them when an
                              instance became free
  ratio.MODEL.PAYLOAD.PEER    faas-infer's rate over that of the peer's best setting. Both are
                              found once more for it, a trial of one after a trial of the
                              other, since the speed of a shared machine varies
  ratio.worst, ratio.median   over all of these
  engine.MODEL                requests/s of ONNX Runtime alone, one batch after the other
  limit.MODEL                 requests/s within the SLO if a server took no time beside the
                              engine, with the arrivals of the trials
  engine_share.MODEL.PAYLOAD  faas-infer's rate over the engine's
  limit_share.MODEL.PAYLOAD   faas-infer's rate over the limit
  grid.PEER                   the settings that were tried
  knobs.PEER                  how many settings a user must find for an objective
  limits.PEER                 what a peer lacks here
  missing.MODEL.PAYLOAD.PEER  why a figure is missing

The first run makes each peer's Python environment from PyPI, 0.3 to 1 GB each. The bench
needs two cores that nothing else uses. A trial of resnet-50 takes about a minute, so that
everything takes hours: select models and peers.`,
		Example: `  faas-infer-lab bench peers
  faas-infer-lab bench peers --models dssm --peers triton,ray --only json
  faas-infer-lab bench peers --models resnet-50 --peers none
  faas-infer-lab bench peers --budget 30s --trial 3s --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if b.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return peers.Run(ctx, o, b)
	})
	f := c.Flags()
	f.StringSliceVar(&b.Models, "models", nil, "models to measure: "+strings.Join(peers.Models(), ", ")+" (default: all)")
	f.StringSliceVar(&b.Peers, "peers", nil, "peers to measure: "+strings.Join(peers.Names(), ", ")+"; or none (default: all)")
	f.StringSliceVar(&b.Payloads, "only", nil, "payloads to send: binary, json, grpc (default: all)")
	f.DurationVar(&b.Trial, "trial", 1500*time.Millisecond, "how long one rate is offered, at least 12 times the SLO and 600 requests")
	f.DurationVar(&b.Budget, "budget", 20*time.Second, "how long one search may take from its first missed rate on; it has 7 to 14 trials")
	return c
}
