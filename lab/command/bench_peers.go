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
		Short: "The highest rate within the SLO, beside MLServer, BentoML, Ray Serve and Triton",
		Long: `peers serves the same ONNX files with this provider, MLServer, BentoML, Ray Serve
and Triton, one after the other, and finds the highest open-loop Poisson rate of which
99 % of the requests are answered correctly within the SLO: 50 ms for mnist, dssm and
lstm-2365, 400 ms for resnet-50. Latency counts from the intended time of sending.

All processes of a server share one core, the load generator has the other. One search
finds all rates: up or down by 3 until one is met and one is not, then halves of that,
until 4 % are left or the budget is spent; a rate that is missed is offered twice. Ours is
a function deployed with its SLO and nothing else. Each peer is the small service that
its documents describe, with the ONNX Runtime that we use, and is tuned over a grid of
largest batch, time that a batch waits, workers and protocol; the setting that is best
is in the notes. A peer's rate counts only if its answers are ours, but for rounding.

Results: rps.MODEL.PAYLOAD.WHO in requests/s, ratio.MODEL.PAYLOAD.PEER (ours over
theirs), ratio.worst and ratio.median; grid.PEER has the settings that were tried,
limits.PEER what a peer lacks here, and missing.MODEL.PAYLOAD.PEER why a figure is not
there.

The first time, it makes each peer's Python environment from PyPI, 0.3 to 1 GB each. It
needs two cores that nothing else uses, and takes about half an hour for everything.`,
		Example: `  faas-infer-lab bench peers
  faas-infer-lab bench peers --models dssm --peers triton,ray --only json
  faas-infer-lab bench peers --budget 30s --trial 3s --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if b.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return peers.Run(ctx, o, b)
	})
	f := c.Flags()
	f.StringSliceVar(&b.Models, "models", nil, "models to measure: "+strings.Join(peers.Models(), ", ")+" (default: all)")
	f.StringSliceVar(&b.Peers, "peers", nil, "peers to measure: "+strings.Join(peers.Names(), ", ")+" (default: all)")
	f.StringSliceVar(&b.Payloads, "only", nil, "payloads to send: binary, json (default: both)")
	f.DurationVar(&b.Trial, "trial", 1500*time.Millisecond, "how long one rate is offered, at least 12 times the SLO")
	f.DurationVar(&b.Budget, "budget", 20*time.Second, "how long one search may take, at least seven trials")
	return c
}
