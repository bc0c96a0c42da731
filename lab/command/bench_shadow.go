package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/lab/shadows"
)

func newShadowBenchCommand() *cobra.Command {
	b := shadows.Bench{}
	c := benchCommand(&cobra.Command{
		Use:   "shadow",
		Short: "Measure bodies with shadows against one whole instance and two",
		Long: `shadow pairs a body of one core with a shadow of one core, which holds only blocks that
compute much and weigh little (AsyFunc). In turns it measures one whole instance, two that share
the mapped weights (a twin), two with weights of their own (a whole instance elsewhere), the pair as
printed, whose shadow waits while the body computes its own layers, and the pair whose shadow begins
the next batch meanwhile. Rates are of the time in which all streams have batches in flight.

Results of each model:
  max_difference                 of the pair's answers from the whole model's
  ratio.pair_over_twin           rows per second; synchronous_over_twin is the pair as printed
  predicted_error_pct            of the pair's time, as the provider predicts it: the layer profile's
                                 ratio of pair to body, times what the twins took; .profile is
                                 without the twins
  memory.shadow_over_whole       resident memory with weights of its own
Then the transport's transfer.ms_per_mib and fixed_ms, and start_ms of a shadow from an empty
instance, of a twin and of a stopped instance.

decision.MODEL.own.regret_pct and .shared.regret_pct are by how much the way that the provider takes
is dearer than the cheapest one measured, for these models and those of --decide. The provider's own
engine decides, by the layer profile and by what two whole instances took; if it takes a pair, once
more with what that took. The note says where the prediction cannot tell a pair from whole instances.
  cost      (cores + --price · GiB) / requests per second, in core-milliseconds
  GiB       anonymous and shared memory of both processes as measured, and the weights: "own" counts
            them for each process, "shared" once for both
  ways      own: elsewhere, synchronous, pair; shared: twin, synchronous, pair; and auto, the pair with
            the part that the provider would choose, if that differs
decision.worst_regret_pct is the largest. A way elsewhere runs on this machine, too: its tensors go by
shared memory, not over a network. The bench needs two cores, and a machine that does nothing else.`,
		Example: `  faas-infer-lab bench shadow --json
  faas-infer-lab bench shadow --model resnet-50 --phi 0:12 --rounds 5 --decide ""`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if err := b.Check(); err != nil {
			return nil, err
		}
		r := report.New("bench shadow", time.Now())
		return r, b.Run(ctx, o, r)
	})
	f := c.Flags()
	f.StringSliceVar(&b.Models, "model", []string{"vgg-16", "resnet-50"}, "architectures of faas-infer model make, or ONNX files")
	f.StringVar(&b.Phi, "phi", "", "the shadow's blocks, such as 0:18 (default: the lightest with 0.97 of two whole instances' rows by prediction)")
	f.IntVar(&b.Rows, "rows", 4, "rows of a whole instance's batch, at most 11; a pair's has half as many more")
	f.IntVar(&b.Rounds, "rounds", 3, "rounds of all ways")
	f.DurationVar(&b.Each, "each", 6*time.Second, "how long each way is measured in a round")
	f.StringSliceVar(&b.Decide, "decide", shadows.Zoo(), "further models whose decisions are compared, each way in one round")
	f.DurationVar(&b.DecideEach, "decide-each", 2*time.Second, "how long each way of these is measured")
	f.StringVar(&b.Database, "database", "", "database of operators' times (default: they are measured in this run)")
	f.Float64Var(&b.Price, "price", 0, "price of a GiB in cores (default: this machine's cores over its memory)")
	return c
}
