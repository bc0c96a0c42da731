package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/partitions"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newPartitionBenchCommand() *cobra.Command {
	var b partitions.Bench
	c := benchCommand(&cobra.Command{
		Use:   "partition",
		Short: "Measure models in one piece and cut over two instances",
		Long: `partition plans how a model is cut over two instances of one core each (Gillis,
ICDCS 2021), and measures three ways in turns: whole on one instance of one core, whole on
one instance of two threads and cores, and the plan's parts, with up to four other plans
beside. This process is the master.

Results of each model:
  speedup          one core over the plan
  speedup_threads  one thread over two
  regret_pct       the chosen plan over the best of all plans measured
  error_pct        predicted over measured time, of the plan and of the whole
  rel_diff         how far the parts' answer is from the whole's
It needs two cores, and a machine that does nothing else. Planning takes minutes if the
operators of a model have not been measured.`,
		Example: `  faas-infer-lab bench partition
  faas-infer-lab bench partition --model resnet-50,mobilenet --rounds 10 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if len(b.Models) == 0 || b.Rounds < 1 || b.Requests < 1 {
			return nil, errors.New("--model must name a model, --rounds and --requests must be at least 1")
		}
		return b.Run(ctx, "bench partition", o)
	})
	f := c.Flags()
	f.StringSliceVar(&b.Models, "model", []string{"vgg-16", "resnet-50"}, "architectures of faas-infer model make")
	f.IntVar(&b.Rounds, "rounds", 5, "how often the ways take turns")
	f.IntVar(&b.Requests, "requests", 10, "requests of each way in a turn")
	profile.DatabaseFlag(c, &b.Database)
	return c
}
