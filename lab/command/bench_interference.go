package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/interference"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newInterferenceCommand() *cobra.Command {
	b := interference.Bench{}
	c := benchCommand(&cobra.Command{
		Use:   "interference",
		Short: "Measure how soon the provider notices that a process disturbs an instance, and relieves it",
		Long: `interference starts a provider with one instance of a model and sends it requests at
random times. After a while a real-time process takes most of the instance's core. It
does so in three situations:

  moved   the instance has the core to itself, and the provider can move it to another
  shared  the instance shares all cores, and the kernel moves it
  stuck   instances may use this core only; this shows what the other two save

Results of each:
  detect_s   time until the state of the variant is interfered
  recover_s  time until as many requests are within the objective as before
  lost       requests without an answer
and the share of the requests within the objective before, during and after. It needs
root and two cores, and a machine that does nothing else.`,
		Example: `  faas-infer-lab bench interference
  faas-infer-lab bench interference --model mnist --slo 50ms --rate 100 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return interference.Run(ctx, o, b)
	})
	f := c.Flags()
	f.StringVar(&b.Model, "model", "resnet-50", "an architecture of faas-infer model make")
	f.DurationVar(&b.SLO, "slo", 300*time.Millisecond, "latency objective")
	f.Float64Var(&b.Rate, "rate", 5, "requests per second to an instance with one core")
	f.DurationVar(&b.Calm, "calm", 20*time.Second, "how long requests come before and after the disturbance")
	f.DurationVar(&b.Disturbed, "disturbed", 20*time.Second, "how long the disturbance lasts")
	f.Float64Var(&b.Share, "share", 0.8, "part of the core that it takes, at most 0.9")
	return c
}

// newSeizeCommand is the process that takes a core.
func newSeizeCommand() *cobra.Command {
	var core int
	var share float64
	var lasts time.Duration
	c := &cobra.Command{
		Use:     "seize",
		Short:   "Take a part of a core with real-time priority",
		Example: `  faas-infer-lab bench seize --core 1 --share 0.8 --for 10s`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interference.Seize(cmd.Context(), core, share, lasts)
		},
	}
	c.Flags().IntVar(&core, "core", 0, "the core")
	c.Flags().Float64Var(&share, "share", 0.8, "the part of it")
	c.Flags().DurationVar(&lasts, "for", 10*time.Second, "for how long")
	return c
}
