package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/partitions"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newPartitionBenchCommand() *cobra.Command {
	b := partitions.Bench{}
	served := partitions.Served{Steps: partitions.Steps(), Requests: 20, Fast: "vgg-16", Large: "wrn-50-4", Limit: "768Mi", Layers: [2]int{12, 3}}
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

Then it measures the --served steps behind a provider:
  fast   one instance of one core over two that hold half the model each; the first
         answer from zero over the slowest member's own start; requests while a worker
         is killed every second
  large  a model that fits into no instance, and the memory of all processes
  rnn    the time of a layer, cut over whole (Fig. 12)
It needs two cores, and a machine that does nothing else. Planning takes minutes if the
operators of a model have not been measured.`,
		Example: `  faas-infer-lab bench partition
  faas-infer-lab bench partition --model resnet-50,mobilenet --rounds 10 --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if b.Rounds < 1 || b.Requests < 1 {
			return nil, errors.New("--rounds and --requests must be at least 1")
		}
		for _, step := range served.Steps {
			if !slices.Contains(partitions.Steps(), step) {
				return nil, fmt.Errorf("--served names %q; the steps are %s", step, strings.Join(partitions.Steps(), ", "))
			}
		}
		served.Requests = max(5, b.Requests)
		r := report.New("bench partition", time.Now())
		// The second part pins this process.
		err := served.Run(ctx, o, r)
		if err == nil {
			err = b.Run(ctx, o, r)
		}
		return r, err
	})
	f := c.Flags()
	f.StringSliceVar(&b.Models, "model", []string{"vgg-16", "resnet-50"}, "architectures of faas-infer model make")
	f.IntVar(&b.Rounds, "rounds", 5, "how often the ways take turns")
	f.StringSliceVar(&served.Steps, "served", served.Steps, "what to measure behind a provider")
	f.StringVar(&served.Fast, "fast", served.Fast, "model of the step fast")
	f.StringVar(&served.Large, "large", served.Large, "model of the step large")
	f.StringVar(&served.Limit, "limit", served.Limit, "memory of an instance of the large models")
	f.IntVar(&b.Requests, "requests", 10, "requests of each way in a turn")
	profile.DatabaseFlag(c, &b.Database)
	return c
}
