package infaas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/children"
)

const (
	// evaluationBatch is the number of rows that are run at once.
	evaluationBatch = 8
	// timeBudget bounds the time to measure one batch size, timeRuns the runs.
	timeBudget, timeRuns = time.Second, 30
	// loadRuns is how often a model is loaded to measure that.
	loadRuns = 3
)

// evaluateOptions are the flags of "model evaluate".
type evaluateOptions struct {
	data, image, metric, against, prepared string
	// texts is the directory of a bundle whose model takes texts.
	texts string
	rows  int
	json  bool
}

func newEvaluateCommand() *cobra.Command {
	var o evaluateOptions
	c := &cobra.Command{
		Use:   "evaluate FILE",
		Short: "Measure a model's accuracy on labelled data, its time, load time and memory",
		Long: `evaluate runs an ONNX model on labelled data as an instance would, and prints its accuracy
with the interval that holds the true accuracy with 95 % confidence (Wilson). It also
prints the time of a row and the rate in batches of 8 on one core, the time to load the
prepared model, and the memory that an instance takes.

--data is a file or a directory:

  .npz   arrays by the names of the model's inputs, or x for the only one, and the
         classes' numbers in y or labels (numpy.savez)
  DIR    a directory of images for each class; --image says how the model
         expects images, as com.openfaas.infer.image does

The answer is the class with the highest score. If a model answers with one number, that
is class 1 above 0.5, otherwise class 0.

--against names another model. evaluate then prints the share of the rows that both answer
alike. That is no accuracy, and without --data the inputs are random. Without both flags,
evaluate measures only time and memory.

--texts names the bundle of a model of texts. Its inputs are then 64 sample texts, and two
models answer one alike if the cosine of their vectors is 0.99 or more, or their scores
differ by 0.01 or less.`,
		Example: `  faas-infer model evaluate resnet50.onnx --data validation.npz
  faas-infer model evaluate resnet50.onnx --data images --image 224x224 --metric top-5
  faas-infer model evaluate resnet50-int8.onnx --against resnet50.onnx --json
  faas-infer model evaluate minilm/onnx/model_quantized.onnx --against minilm/onnx/model.onnx --texts minilm`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := o.run(c.Context(), args[0])
			if err != nil {
				return err
			}
			return r.Print(c.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	f.StringVar(&o.data, "data", "", "labelled data: a .npz file, or a directory with a directory of images for each class")
	f.StringVar(&o.image, "image", "", "how the model expects images, as in com.openfaas.infer.image, for example 224x224")
	f.StringVar(&o.metric, "metric", string(registration.Top1), "which answers are right: top-1 or top-5")
	f.StringVar(&o.against, "against", "", "another model to compare the answers with")
	f.StringVar(&o.texts, "texts", "", "the bundle of a model of texts, for sample texts instead of random inputs")
	f.IntVar(&o.rows, "rows", 256, "number of random rows without --data")
	f.StringVar(&o.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (o *evaluateOptions) run(ctx context.Context, file string) (*report.Report, error) {
	metric, err := registration.ParseMetric(o.metric)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%w", err)
	case o.rows < labelled.MinRows || o.rows > labelled.MaxRows:
		return nil, fmt.Errorf("--rows is %d: give a number from %d to %d", o.rows, labelled.MinRows, labelled.MaxRows)
	case o.data != "" && o.texts != "":
		return nil, errors.New("--data and --texts are both given: a model of texts has no labelled data; remove one")
	}
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	r := report.New(strings.Join(slices.Concat([]string{"model evaluate", file}, given("--data", o.data), given("--against", o.against)), " "), time.Now())
	opens, err := o.prepare(ctx, file)
	if err != nil {
		return nil, err
	}
	e := evaluation{metric: metric}
	if err := o.times(ctx, r, &e, opens); err != nil {
		return nil, err
	}
	if o.data == "" && o.against == "" {
		return r, nil
	}
	opens.Threads = runtime.NumCPU()
	if e.engine, err = onnxruntime.Open(opens); err != nil {
		return nil, err
	}
	defer e.engine.Close()
	if o.against != "" {
		if opens, err = o.prepare(ctx, o.against); err == nil {
			opens.Threads = runtime.NumCPU()
			e.original, err = onnxruntime.Open(opens)
		}
		if err != nil {
			return nil, fmt.Errorf("--against: %w", err)
		}
		defer e.original.Close()
		if err := alike(e.original, e.engine); err != nil {
			return nil, fmt.Errorf("--against: %w", err)
		}
	}
	return r, e.judge(ctx, r)
}

// times opens the model on one core, gets its inputs and adds what it costs.
func (o *evaluateOptions) times(ctx context.Context, r *report.Report, e *evaluation, opens onnxruntime.Options) (err error) {
	if e.engine, err = o.open(ctx, r, opens); err != nil {
		return err
	}
	defer e.engine.Close()
	e.answers = answersOf(signatureOf(e.engine).Outputs)
	if e.batch, err = o.inputs(e, opens.Model); err != nil {
		return err
	}
	return e.time(ctx, r)
}

// given returns a flag as it was given, nothing for one that was not.
func given(flag, value string) []string {
	if value == "" {
		return nil
	}
	return []string{flag, value}
}

// prepare prepares a model in a child, because that takes memory, and returns how to open it
// on one thread.
func (o *evaluateOptions) prepare(ctx context.Context, file string) (onnxruntime.Options, error) {
	opens := onnxruntime.Options{Model: file, Threads: 1}
	if err := oneModel(file); err != nil {
		return opens, err
	}
	cache, err := profile.PreparedDir(o.prepared)
	if err != nil {
		return opens, err
	}
	opens.Prepared, err = children.New(children.Config{Prepared: cache}).Prepare(ctx, file)
	return opens, err
}

// oneModel refuses what is not the file of a model, and says what to give instead.
func oneModel(file string) error {
	info, err := os.Stat(file)
	dir, is := file, "a directory"
	switch {
	case err != nil:
		return err
	case filepath.Base(file) == bundle.ManifestFile:
		dir, is = filepath.Dir(file), "the manifest of a bundle"
	case !info.IsDir():
		return nil
	}
	b, err := bundle.OpenDir(dir)
	switch {
	case err != nil:
		return fmt.Errorf("%s is %s, not a model: give the file of one ONNX model", file, is)
	case b.IsProgram() || b.Engine != bundle.EngineONNX:
		return fmt.Errorf("%s is %s without ONNX models: only these can be evaluated", file, is)
	}
	var files []string
	for _, m := range b.Registered() {
		files = append(files, filepath.Join(dir, m.Model))
	}
	all := ""
	if len(files) > 1 {
		all = fmt.Sprintf("; \"faas-infer model variants %s\" measures them all", dir)
	}
	return fmt.Errorf("%s is %s, not a model: give the file %s%s", file, is, strings.Join(files, " or "), all)
}

// open opens the model, and adds its load time and the memory of the process.
func (o *evaluateOptions) open(ctx context.Context, r *report.Report, opens onnxruntime.Options) (engine *onnxruntime.Engine, err error) {
	load := time.Hour
	for range loadRuns {
		if engine != nil {
			engine.Close()
		}
		if engine, err = onnxruntime.Open(opens); err != nil {
			return nil, err
		}
		load = min(load, engine.LoadTime())
	}
	// An error here means that the model does not take made-up inputs. Its activations are
	// then not in the memory.
	_, _ = engine.Warm(ctx, evaluationBatch)
	memory, err := peakMemory()
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	r.Add("load_ms", 1e3*load.Seconds(), "ms", "to load the prepared model")
	r.Add("memory_mb", float64(memory)/(1<<20), "MB", fmt.Sprintf("of a process with the model, after a batch of %d", evaluationBatch))
	return engine, nil
}

// inputs reads the labelled data, or makes random inputs. It returns a function for some of
// the rows.
func (o *evaluateOptions) inputs(e *evaluation, file string) (func(from, to int) ([]tensor.Tensor, error), error) {
	if o.data != "" {
		set, err := labelled.Read(o.data, protocol.Own(e.engine.Inputs()), o.image)
		if err != nil {
			return nil, err // It names the data, which may come from a flag or from a bundle.
		}
		e.rows, e.labels = set.Rows(), set.Labels
		return set.Batch, nil
	}
	if o.texts != "" {
		signature := signatureOf(e.engine)
		all, err := readTexts(o.texts, signature.Inputs, signature.Outputs)
		if err != nil {
			return nil, fmt.Errorf("--texts: %w", err)
		}
		e.texts, e.rows = all, len(all.rows)
		return all.batch, nil
	}
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	e.rows = o.rows
	return func(from, to int) ([]tensor.Tensor, error) { return m.SampleInputs(to-from, uint64(from+1)) }, nil
}

// alike returns an error if two models do not take the same inputs or give the same outputs.
func alike(old, fresh *onnxruntime.Engine) error {
	same := func(a, b []tensor.Info) bool {
		return slices.EqualFunc(a, b, func(x, y tensor.Info) bool {
			return x.Name == y.Name && x.Type == y.Type && len(x.Shape) == len(y.Shape)
		})
	}
	before, after := signatureOf(old), signatureOf(fresh)
	if !same(before.Inputs, after.Inputs) || !same(before.Outputs, after.Outputs) {
		return fmt.Errorf("it takes %s and gives %s, the other model takes %s and gives %s",
			tensor.Describe(before.Inputs), tensor.Describe(before.Outputs), tensor.Describe(after.Inputs), tensor.Describe(after.Outputs))
	}
	return nil
}

// signatureOf are a model's inputs and outputs as clients see them.
func signatureOf(e *onnxruntime.Engine) profile.Signature {
	return profile.Signature{Inputs: protocol.Own(e.Inputs()), Outputs: protocol.Own(e.Outputs())}
}

// evaluation measures one model.
type evaluation struct {
	engine *onnxruntime.Engine
	// original is compared with, nil if nothing is.
	original *onnxruntime.Engine
	metric   registration.Metric
	answers  answers
	// texts are the rows of a model of texts, nil for any other model.
	texts *texts
	// rows is the number of rows, and batch returns some of them. labels has a class for
	// each, or is nil.
	rows   int
	batch  func(from, to int) ([]tensor.Tensor, error)
	labels []int
}

// judged counts answers. likeness is the least one of a text's.
type judged struct {
	right, alike, numberless int
	likeness                 float64
}

// judge runs all rows, and adds accuracy and agreement.
func (e *evaluation) judge(ctx context.Context, r *report.Report) error {
	if e.labels != nil && e.answers.kind == values {
		return errNoClasses(signatureOf(e.engine).Outputs)
	}
	n := judged{likeness: 1}
	bar := report.ProgressBar(os.Stderr, "evaluating")
	for from := 0; from < e.rows; from += evaluationBatch {
		if err := e.judgeRows(ctx, from, min(from+evaluationBatch, e.rows), &n); err != nil {
			return err
		}
		bar(min(from+evaluationBatch, e.rows), e.rows)
	}
	add := func(name string, hits int, note string) {
		s := registration.ShareOf(hits, e.rows)
		r.Add(name, s.Value, "%", fmt.Sprintf("%d of %d rows, %s; 95 %% interval %.1f to %.1f", hits, e.rows, note, s.Low, s.High))
	}
	if e.labels != nil {
		add("accuracy", n.right, string(e.metric))
	}
	if e.original != nil {
		add("agreement", n.alike, "answered alike; this is no accuracy")
	}
	if e.original != nil && e.texts != nil {
		r.Add("min_likeness", n.likeness, "", "the least cosine of a text's two vectors, or 1 less the largest difference of scores")
	}
	r.Add("rows", float64(e.rows), "", "")
	r.Add("nan_rows", float64(n.numberless), "", "with an output that is not a number")
	return nil
}

func (e *evaluation) judgeRows(ctx context.Context, from, to int, n *judged) error {
	inputs, err := e.batch(from, to)
	if err != nil {
		return err
	}
	out, err := runRows(ctx, e.engine, to-from, inputs)
	if err != nil {
		return fmt.Errorf("rows %d to %d: %w", from, to-1, err)
	}
	var before []tensor.Tensor
	if e.original != nil {
		if before, err = runRows(ctx, e.original, to-from, inputs); err != nil {
			return fmt.Errorf("--against: rows %d to %d: %w", from, to-1, err)
		}
	}
	if e.texts != nil {
		if out, err = e.texts.answers(from, to, out); err == nil && before != nil {
			before, err = e.texts.answers(from, to, before)
		}
		if err != nil {
			return err
		}
	}
	for row := range to - from {
		if numberless(out, row) {
			n.numberless++
		}
		if before != nil && e.agree(before, out, row, n) {
			n.alike++
		}
		if e.labels == nil {
			continue
		}
		scores := e.answers.of(out, row)
		if from+row == 0 {
			if err := e.answers.fits(e.metric, e.labels, scores); err != nil {
				return err
			}
		}
		if e.metric.Right(scores, e.labels[from+row]) {
			n.right++
		}
	}
	return nil
}

// agree reports whether two models answer a row alike.
func (e *evaluation) agree(old, fresh []tensor.Tensor, row int, n *judged) bool {
	if e.texts == nil {
		return e.answers.agree(old, fresh, row)
	}
	only := answers{kind: scores}
	likeness := e.texts.likeness(only.of(old, row), only.of(fresh, row))
	n.likeness = min(n.likeness, likeness)
	return likeness >= minLikeness
}

// time adds the time of a row and the rate. Both are CPU times of the thread that computes,
// so that other work on the machine does not count, and the least of several.
func (e *evaluation) time(ctx context.Context, r *report.Report) error {
	one, err := e.runTime(ctx, 1)
	if err != nil {
		return err
	}
	rows := min(evaluationBatch, e.rows)
	batch, err := e.runTime(ctx, rows)
	if err != nil {
		return err
	}
	r.Add("row_ms", 1e3*one.Seconds(), "ms", "for one row on one core")
	r.Add("rps", max(1/one.Seconds(), float64(rows)/batch.Seconds()), "1/s", fmt.Sprintf("on one core, alone or in batches of %d", rows))
	return nil
}

func (e *evaluation) runTime(ctx context.Context, rows int) (time.Duration, error) {
	inputs, err := e.batch(0, rows)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Duration(0)
	for i, began := 0, time.Now(); i < 3 || i < timeRuns && time.Since(began) < timeBudget; i++ {
		start := onnxruntime.ThreadTime()
		if _, err := runRows(ctx, e.engine, rows, inputs); err != nil {
			return 0, err
		}
		if took := onnxruntime.ThreadTime() - start; i == 0 || took < least {
			least = took
		}
	}
	return max(least, time.Nanosecond), nil
}

// peakMemory returns the largest resident set of this program so far, in bytes. The
// kernel's rusage would count the parent's memory at the fork, too.
func peakMemory() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib int64
			_, err := fmt.Sscan(value, &kib)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}
