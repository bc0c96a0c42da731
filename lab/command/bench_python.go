package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/bench"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newPythonBenchCommand() *cobra.Command {
	p := bench.Handler{}
	c := benchCommand(&cobra.Command{
		Use:   "python",
		Short: "Measure what the Python process beside an instance costs, with TensorFlow or a handler",
		Long: `python makes a small MLP and a small CNN with TensorFlow and measures the process
that runs them beside an instance:
  - the start of an instance with and without a warm process, in turn,
  - the memory that several such processes hold together,
  - the time that a batch of 8 tensors of 1 MiB takes beyond the handler's own time,
  - the highest rate within the objective, in batches and one request at a time.
The first run fetches TensorFlow, half a GB.`,
		Example: `  faas-infer-lab bench python --starts 5
  faas-infer-lab bench python --only overhead
  faas-infer-lab bench python --slo 100ms --trial 2s --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		var err error
		if p.Core, err = rig.PinCores(); err != nil {
			return nil, err
		}
		return bench.RunHandler(ctx, o, p)
	})
	f := c.Flags()
	f.StringSliceVar(&p.Only, "only", nil, "what to measure: "+strings.Join(bench.HandlerParts(), ", ")+" (default: all)")
	f.IntVar(&p.Starts, "starts", 3, "how many instances are started each way")
	f.DurationVar(&p.SLO, "slo", 100*time.Millisecond, "the latency objective of the MLP and the CNN")
	f.IntVar(&p.MaxBatch, "max-batch", 32, "largest batch")
	f.DurationVar(&p.Trial, "trial", time.Second, "how long one rate is offered")
	return c
}
