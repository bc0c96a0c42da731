package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// operatorsOptions are the flags of "profile operators".
type operatorsOptions struct {
	maxBatch, threads  int
	patience           time.Duration
	database, prepared string
	json, again        bool
	// batches, if there are any, are measured on a GPU instead of the powers of two.
	batches []int
	DeviceOptions
}

func newProfileOperatorsCommand() *cobra.Command {
	var o operatorsOptions
	c := &cobra.Command{
		Use:   "operators [MODEL|FILE…]",
		Short: "Measure the models' operators that the database lacks",
		Long: `operators reads models as the engine runs them, with the operators that its optimiser
has fused, and measures each distinct operator alone. It measures the smallest and the
largest batch, and batches between them where the time is not linear, on 1, 2, 4, …
threads. It does not measure parts of a core: a CPU quota spans operators, so its
effect follows from a model's total time.

operators does not measure again what the database has, so an interrupted run can
continue. MODEL is a model of the zoo ("faas-infer model make --list"). Without
arguments, operators measures all models of the INFless paper's Table 1.

Do not use the machine meanwhile. Times that were measured while it was busy are left
out. If there are no others, they are corrected by a yardstick, and operators says so.

With --device cuda, operators measures on shares of an NVIDIA GPU instead, as "faas-infer
profile model" does. Their rows are named by the GPU and its driver.`,
		Example: `  faas-infer profile operators
  faas-infer profile operators resnet-50 my-model.onnx --max-batch 16`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.Device == deviceCUDA {
				return o.runDevice(cmd.Context(), args, cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.maxBatch, "max-batch", 32, "largest batch to measure")
	f.IntVar(&o.threads, "threads", 0, "largest number of threads (0: all cores of this machine)")
	f.IntSliceVar(&o.batches, "batch", nil, "with --device cuda: batch sizes to measure (default: the powers of two up to --max-batch)")
	o.flags(c)
	f.DurationVar(&o.patience, "patience", 4*time.Minute, "total time to wait for the machine to become quiet")
	DatabaseFlag(c, &o.database)
	f.StringVar(&o.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.again, "again", false, "measure again what the database has")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

// check checks the flags.
func (o *operatorsOptions) check() error {
	if o.maxBatch < 1 || o.threads < 0 {
		return errors.New("--max-batch must be at least 1, --threads not negative")
	}
	if len(o.batches) > 0 && slices.Min(o.batches) < 1 {
		return fmt.Errorf("--batch is %v; each must be at least 1", o.batches)
	}
	return o.DeviceOptions.check()
}

func (o *operatorsOptions) run(ctx context.Context, args []string, out io.Writer) error {
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	began := time.Now()
	graphs, err := o.graphs(ctx, args)
	if err != nil {
		return err
	}
	file, err := OpenOperators(o.database)
	if err != nil {
		return err
	}
	defer file.Close()
	m, err := measuring.NewMeasurer(ctx, onnxruntime.Name(), report.Machine(), measuring.KnownPace(file.Database(), onnxruntime.Name(), report.Machine()), measuring.Thorough)
	if err != nil {
		return err
	}
	defer m.Close()
	found, err := o.measure(ctx, m, file, graphs)
	if err != nil {
		return err
	}
	r := report.New("profile operators", time.Now())
	r.Add("operators.models", float64(len(graphs)), "", "")
	r.Add("operators.distinct", float64(found.distinct), "", "operators, of "+fmt.Sprint(found.nodes)+" that the models call")
	r.Add("operators.rows", float64(found.rows), "", "measured now")
	r.Add("operators.noisy_rows", float64(found.noisy), "", "for which the machine did not become quiet")
	r.Add("operators.loud_pct", 100*float64(m.Sampler().Loud)/float64(max(1, m.Sampler().Taken)), "%", "of the executions came while the machine was not quiet")
	pace, _ := m.Sampler().Yardstick()
	r.Add("operators.yardstick_us", pace, "µs", "a 128×128 matrix product on the quiet machine")
	r.Add("operators.seconds", time.Since(began).Seconds(), "s", "with preparing the models")
	if o.json {
		return r.JSON(out)
	}
	if err := r.Table(out); err != nil {
		return err
	}
	if found.noisy > 0 {
		fmt.Fprintf(os.Stderr, "the machine was too noisy for %d rows, which were corrected by the yardstick; run this again when the machine is quiet to measure them again\n", found.noisy)
	}
	return nil
}

// graphs reads the optimised graphs of the models that args name.
func (o *operatorsOptions) graphs(ctx context.Context, args []string) ([]*operator.Graph, error) {
	if len(args) == 0 {
		args = SubjectTable()
	}
	models, err := NewSubjects(o.prepared)
	if err != nil {
		return nil, err
	}
	defer models.Close()
	bar := report.ProgressBar(os.Stderr, "preparing models")
	var graphs []*operator.Graph
	for i, a := range args {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		bar(i, len(args))
		s, err := models.Get(a)
		if err != nil {
			return nil, err
		}
		graphs = append(graphs, s.Optimised)
	}
	bar(len(args), len(args))
	return graphs, nil
}

// OpenOperators opens the database of operators. It prints a message if it repaired the
// file.
func OpenOperators(path string) (*operators.File, error) {
	path, err := DatabasePath(path)
	if err != nil {
		return nil, err
	}
	return operators.Open(path, func(r operators.Repair) { fmt.Fprintln(os.Stderr, r) })
}

// measuredOperators holds the counts of one run.
type measuredOperators struct{ nodes, distinct, rows, noisy int }

// measure measures what the database lacks for the graphs.
func (o *operatorsOptions) measure(ctx context.Context, m *measuring.Measurer, file *operators.File, graphs []*operator.Graph) (measuredOperators, error) {
	var found measuredOperators
	seen := map[string]bool{}
	for _, g := range graphs {
		found.nodes += len(g.Nodes)
		for _, op := range g.Operators {
			seen[op.Key()] = true
		}
	}
	found.distinct = len(seen)
	w := &work{
		Measurer: m, file: file, began: time.Now(), again: o.again, patience: o.patience,
		tasks: measuring.Tasks(graphs, BatchesUpTo(o.maxBatch), ThreadsUpTo(o.threads), measuring.ReadCaches()),
	}
	err := w.do(ctx)
	found.rows, found.noisy = w.rows, w.count(w.doubtful())
	return found, errors.Join(err, file.Sync())
}

// BatchesUpTo returns the powers of two up to the largest batch, and the largest batch.
func BatchesUpTo(largest int) []int {
	batches := powersOfTwo(largest)
	if last := batches[len(batches)-1]; last != largest {
		batches = append(batches, largest)
	}
	return batches
}
