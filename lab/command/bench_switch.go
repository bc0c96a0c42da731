package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/precision"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newSwitchCommand() *cobra.Command {
	b := precision.Switch{}
	c := benchCommand(&cobra.Command{
		Use:   "switch",
		Short: "Count the requests that are late or lost while a function changes to a more accurate variant",
		Long: `switch deploys a function with the variants fp32 and int8 of a model, and sends it
requests at random times. int8 alone answers them. Then more accuracy is asked, so that
fp32 has to take over, and 20 s later less again. There are two ways to ask:

  floor   a deployment with a higher com.openfaas.slo.accuracy
  header  requests with a higher X-Infer-Accuracy

Results:
  switch.late_pct            requests without a good answer within the objective, of those
                             in the 20 s around the changes; to reach: at most 1
  switch.refused             of these, requests that were refused with 503
  switch.lost                requests without any of these answers; to reach: 0
  switch.WAY.up.late_pct     the first of these for each way and direction
  switch.later.late_pct      late requests after that, while int8 takes over again
  switch.switched            how often fp32 had to take over`,
		Example: `  faas-infer-lab bench switch
  faas-infer-lab bench switch --model mobilenet --slo 100ms --times 5 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return precision.RunSwitch(ctx, o, b)
	})
	f := c.Flags()
	f.StringVar(&b.Model, "model", "resnet-50", "an architecture of faas-infer model make")
	f.DurationVar(&b.SLO, "slo", 300*time.Millisecond, "latency objective")
	f.Float64Var(&b.Load, "load", 0.5, "part of a core that the requests take in fp32, one by one")
	f.IntVar(&b.Times, "times", 3, "how often each way goes up and down")
	f.DurationVar(&b.After, "after", 90*time.Second, "how long requests come after the last change")
	f.DurationVar(&b.Profiling, "profiling", 2*time.Minute, "how long to wait for the full profile of a model at most")
	return c
}
