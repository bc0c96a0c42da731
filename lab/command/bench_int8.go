package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/precision"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newInt8Command() *cobra.Command {
	b := precision.Serve{}
	c := benchCommand(&cobra.Command{
		Use:   "int8",
		Short: "Measure how much more an int8 model serves than its original, through the provider and in the engine",
		Long: `int8 quantises models as "faas-infer model variants" does, and takes the faster of
the int8 forms. It deploys int8 and fp32 in turn, each with one instance that has a core
to itself; the provider and the load share the other core. Clients send as many requests
as are answered within the objective.

Results:
  rps.MODEL.VARIANT                 requests/s within the objective
  rps_ratio.MODEL.int8_over_fp32    of these
  engine_ratio.MODEL                the same of the engine alone, in batches
  share_of_engine.MODEL             the first ratio over the second; to reach: 0.75
The first run fetches ONNX Runtime's quantizer, 60 MB.`,
		Example: `  faas-infer-lab bench int8
  faas-infer-lab bench int8 --models dssm --rounds 5 --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if b.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return precision.RunServe(ctx, o, b)
	})
	c.Flags().StringSliceVar(&b.Models, "models", precision.Served(), "architectures of faas-infer model make")
	c.Flags().IntVar(&b.Rounds, "rounds", 3, "how often both are measured in turn")
	c.Flags().DurationVar(&b.Trial, "trial", 3*time.Second, "how long each is measured")
	c.Flags().DurationVar(&b.Profiling, "profiling", 2*time.Minute, "how long to wait for the full profile of a model at most")
	return c
}
