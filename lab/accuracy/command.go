package accuracy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// accuracyOptions are the flags of "accuracy".
type accuracyOptions struct {
	maxBatch, threads  int
	database, prepared string
	ablation, json     bool
	repeat             bool
	inTurn             bool
	patience           time.Duration
}

// NewCommand returns "faas-infer-lab accuracy".
func NewCommand() *cobra.Command {
	var o accuracyOptions
	c := &cobra.Command{
		Use:   "accuracy [MODEL|FILE…]",
		Short: "Compare predicted with measured times, every model × batch × CPU share",
		Long: `accuracy predicts each model at every batch size on half a core, one core, two, … from
this machine's operator profiles. Then it measures the model itself, as an instance
runs it. It prints every row: |P−A|/A of predicted P and measured A. It also prints the
mean for each model and over all, and the worst row. No row is left out. MODEL is one of
the zoo; the default is all models of the INFless paper's Table 1.

The speed of a machine that shares its host changes from minute to minute. Therefore
accuracy measures each model's operators right before the model and stores them in the
database. With --in-turn=false it uses the database without measuring (see "profile
operators"). Operators that the database lacks are regressed; the row says which part
of its time is regressed.

On half a core the time is the mean of successive batches under a CPU quota, which needs
the right to make cgroups. Each model is measured twice. error_pct.MODEL should be at
most bar_pct.MODEL, and the bias at most 5 %. bar_pct.MODEL is the larger of 5 % and
repeat_pct.MODEL, the difference of the two measurements. Predicted and measured times
are both scaled to the pace of the quiet machine; --json has the unscaled times too.

The ablation shows what each step contributes. It predicts with the graph before the
engine's optimiser instead of the one that runs, and first measures the operators that
the database lacks. It applies the paper's rule that the longest of parallel branches
counts. And it leaves out the correction for weights that come from memory.`,
		Example: `  faas-infer-lab accuracy
  faas-infer-lab accuracy dssm-2365 my-model.onnx --max-batch 8 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.maxBatch, "max-batch", 32, "largest batch")
	f.IntVar(&o.threads, "threads", 0, "largest number of threads (0: all cores of this machine)")
	profile.DatabaseFlag(c, &o.database)
	f.StringVar(&o.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.inTurn, "in-turn", true, "measure each model's operators right before the model")
	f.BoolVar(&o.ablation, "ablation", true, "also show what each step of the prediction contributes")
	f.BoolVar(&o.repeat, "repeat", true, "measure each model twice: the difference is the best that a prediction can reach")
	f.DurationVar(&o.patience, "patience", 3*time.Minute, "total time for repeating measurements that a noisy machine has disturbed")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

// way is one way to predict.
type way struct {
	// name is a part of the result's name, says its note.
	name, says string
	predict    func(*profile.Subject) (*cop.Prediction, error)
}

// accuracyRun is one run of the command.
type accuracyRun struct {
	*accuracyOptions
	batches, threads, shares []int
	ways                     []way
	file                     *operators.File
	measurer                 *measuring.Measurer
	times                    *profile.ModelTimes
	under                    underQuota
	rows                     []accuracyRow
	progress                 func(done, total int)
	total                    int
}

// accuracyRow is one model at one batch on one share.
type accuracyRow struct {
	Row
	sample measuring.Sample
	// regressed is the part of the predicted time that comes from regressed operators.
	regressed float64
	// other are the ablations' predictions in µs.
	other []float64
	// repeated is the second measurement in µs, 0 if there is none.
	repeated float64
}

func (o *accuracyOptions) run(ctx context.Context, args []string, out io.Writer) error {
	if o.maxBatch < 1 || o.threads < 0 || o.patience < 0 {
		return errors.New("--max-batch must be at least 1, --threads and --patience not negative")
	}
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	file, err := profile.OpenOperators(o.database)
	if err != nil {
		return err
	}
	defer file.Close()
	if !o.inTurn && file.Database().Len() == 0 {
		return errors.New("the database has no operator profiles; run `faas-infer profile operators` first")
	}
	if len(args) == 0 {
		args = profile.SubjectTable()
	}
	r, models, err := o.prepare(ctx, file, args)
	if err != nil {
		return err
	}
	defer r.close()
	defer models.Close()
	for _, a := range args {
		s, err := models.Get(a)
		if err != nil {
			return err
		}
		if err := r.model(ctx, s); err != nil {
			return err
		}
	}
	r.progress(r.total, r.total)
	return r.print(out)
}

// prepare opens what all models share: the measurer, the times and the subjects.
func (o *accuracyOptions) prepare(ctx context.Context, file *operators.File, args []string) (*accuracyRun, *profile.Subjects, error) {
	known := measuring.KnownPace(file.Database(), onnxruntime.Name(), report.Machine())
	measurer, err := measuring.NewMeasurer(ctx, onnxruntime.Name(), report.Machine(), known, measuring.Thorough)
	if err != nil {
		return nil, nil, err
	}
	r := &accuracyRun{
		accuracyOptions: o, file: file, measurer: measurer, batches: profile.BatchesUpTo(o.maxBatch), threads: profile.ThreadsUpTo(o.threads), times: profile.NewModelTimes(known),
		progress: report.ProgressBar(os.Stderr, "measuring models"),
	}
	if r.times.Why == nil {
		r.shares = append(r.shares, 500)
	} else {
		fmt.Fprintf(os.Stderr, "no rows for half a core: %v\n", r.times.Why)
	}
	for _, n := range r.threads {
		r.shares = append(r.shares, 1000*n)
	}
	r.total = len(args) * len(r.shares) * len(r.batches)
	models, err := profile.NewSubjects(o.prepared)
	if err != nil {
		r.close()
		return nil, nil, err
	}
	if o.ablation {
		if err := r.measureUnfused(ctx, file, models, args); err != nil {
			models.Close()
			r.close()
			return nil, nil, err
		}
	}
	return r, models, nil
}

func (r *accuracyRun) close() {
	r.times.Close()
	r.measurer.Close()
}

// setWays lists the ways to predict from the database as it is now. The first one is the
// prediction; the others are the ablations.
func (r *accuracyRun) setWays() {
	p := profile.NewPredictor(r.file.Database())
	r.under = func(prediction *cop.Prediction, c cop.Config, millicores int) float64 {
		return p.UnderQuota(prediction.Graph, c, millicores)
	}
	with := func(change func(*cop.Options)) func(*profile.Subject) (*cop.Prediction, error) {
		return func(s *profile.Subject) (*cop.Prediction, error) {
			return p.Predict(s.Optimised, r.batches, r.threads, change)
		}
	}
	r.ways = []way{{"", "", with(nil)}}
	if r.ablation {
		r.ways = append(r.ways,
			way{"no_fusion", "operators of the graph before the engine's optimiser", func(s *profile.Subject) (*cop.Prediction, error) {
				g, err := s.Original()
				if err != nil {
					return nil, err
				}
				return p.Predict(g, r.batches, r.threads, nil)
			}},
			way{"max_rule", "of parallel branches the longest counts (§3.3)", with(func(o *cop.Options) { o.Rule = cop.Longest })},
			way{"no_memory", "weights always come from the last-level cache", with(func(o *cop.Options) { o.ColdShare = nil })})
	}
}

// model predicts and measures one model.
func (r *accuracyRun) model(ctx context.Context, s *profile.Subject) error {
	if r.inTurn {
		if err := r.operators(ctx, s); err != nil {
			return err
		}
	}
	r.setWays()
	var predictions []*cop.Prediction
	for _, w := range r.ways {
		p, err := w.predict(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		predictions = append(predictions, p)
	}
	from := len(r.rows)
	for _, share := range r.shares {
		for _, b := range r.batches {
			row, err := rowOf(s.Name, predictions, r.under, b, share)
			if err != nil {
				return err
			}
			r.rows = append(r.rows, row)
		}
	}
	rows := r.rows[from:]
	for i, share := range r.shares {
		mine := rows[i*len(r.batches) : (i+1)*len(r.batches)]
		if err := r.measure(ctx, s, mine, r.batches, share, from+i*len(r.batches)); err != nil {
			return err
		}
		if err := r.retryNoisy(ctx, s, mine, share); err != nil {
			return err
		}
	}
	if !r.repeat {
		return nil
	}
	for i, share := range r.shares {
		if err := r.measureAgain(ctx, s, rows[i*len(r.batches):(i+1)*len(r.batches)], share); err != nil {
			return err
		}
	}
	return nil
}

// measureAgain measures rows a second time, after all others of the model. The difference
// from the first time is the best that a prediction can reach on this machine.
func (r *accuracyRun) measureAgain(ctx context.Context, s *profile.Subject, rows []accuracyRow, share int) error {
	second := slices.Clone(rows)
	for i := range second {
		second[i].Measured = 0
	}
	if err := r.measure(ctx, s, second, r.batches, share, len(r.rows)-len(rows)); err != nil {
		return err
	}
	if err := r.retryNoisy(ctx, s, second, share); err != nil {
		return err
	}
	for i := range rows {
		rows[i].repeated = second[i].Measured
	}
	return nil
}

// measure measures the batches and puts the times into their rows.
func (r *accuracyRun) measure(ctx context.Context, s *profile.Subject, rows []accuracyRow, batches []int, share, done int) error {
	return r.times.Measure(ctx, s, batches, share, func(t profile.TimeOf) {
		i := slices.IndexFunc(rows, func(row accuracyRow) bool { return row.Batch == t.Batch })
		if row := &rows[i]; row.Measured == 0 || calmer(t.Sample, row.sample) {
			row.sample, row.Measured = t.Sample, t.Sample.Typical
		}
		r.progress(min(done+i, r.total-1), r.total)
	})
}

// calmer reports whether a replaces b as the time of a row. A sample of a quiet machine
// replaces a noisy one; otherwise the sample with the smaller spread counts.
func calmer(a, b measuring.Sample) bool {
	if a.Noisy != b.Noisy {
		return b.Noisy
	}
	return a.Spread < b.Spread
}

// retryNoisy measures noisy rows again, up to three times and while patience lasts.
func (r *accuracyRun) retryNoisy(ctx context.Context, s *profile.Subject, rows []accuracyRow, share int) error {
	for tries := 0; tries < 3 && r.patience > 0; tries++ {
		var batches []int
		for _, row := range rows {
			if row.sample.Noisy {
				batches = append(batches, row.Batch)
			}
		}
		if len(batches) == 0 {
			return nil
		}
		began := time.Now()
		if err := r.measure(ctx, s, rows, batches, share, len(r.rows)-len(rows)); err != nil {
			return err
		}
		r.patience -= time.Since(began)
	}
	return nil
}

// underQuota returns the mean time in µs of a prediction's config on a CPU share.
type underQuota func(p *cop.Prediction, c cop.Config, millicores int) float64

// rowOf returns the row with the predictions for a batch on a share.
func rowOf(name string, predictions []*cop.Prediction, under underQuota, batch, share int) (accuracyRow, error) {
	row := accuracyRow{Row: Row{Model: name, Batch: batch, Millicores: share}}
	for i, p := range predictions {
		c, ok := p.At(batch, (share+999)/1000)
		if !ok {
			return row, fmt.Errorf("%s: there is no prediction for a batch of %d on %dm", name, batch, share)
		}
		t := under(p, *c, share)
		if i == 0 {
			row.Predicted, row.regressed = t, c.Shares[cop.Regressed]
			continue
		}
		row.other = append(row.other, t)
	}
	return row, nil
}
