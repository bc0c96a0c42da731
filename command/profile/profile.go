// Package profile is the command "faas-infer profile". It measures operators and models in
// the real engine, stores the measurements, and predicts models' times from them. The
// methods of measuring and predicting are in package profiler and its sub-packages. Begin
// reading at [NewCommand], then [Options] and [Predictor].
package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

// NewCommand returns "faas-infer profile".
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "profile",
		Short: "Measure how long a model's batches take on this machine",
		Long: `profile measures models and their operators. The provider does the same by itself when
a function is deployed, and keeps the result as long as model, engine and machine stay
the same.`,
		Example: `  faas-infer model make resnet-50 --out resnet-50.onnx
  faas-infer profile model resnet-50.onnx --max-batch 8 --until 200ms`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newProfileModelCommand(), newProfileOperatorsCommand(), newProfilePredictCommand(), newProfileTimesCommand(), newYardstickCommand(),
		newProfileListCommand(), newProfileExportCommand(), newProfileImportCommand(), newShareCommand())
	return c
}

// Options are the flags of "profile model".
type Options struct {
	MaxBatch, Threads int
	// Batches, if there are any, are measured instead of the powers of two up to MaxBatch.
	Batches []int
	// Until, if it is not 0, ends the batches with the first that takes longer.
	Until time.Duration
	DeviceOptions
	// Prepared is the directory of prepared models, "" for the usual one. Out is a file
	// for the profile, "" for none.
	Prepared, Out string
	JSON          bool
	// Sketch measures for only about a second; the profile is provisional.
	Sketch bool
	// Shapes are the sizes of the model's free dimensions that it is measured with, MaxShapes the
	// largest.
	Shapes, MaxShapes tensor.Shapes
	// MaxLength is the maximum number of tokens of a text, 0 if the model takes none.
	MaxLength int
	TryFlags
	// Warm is the directory of warm Python processes, "" for none.
	Warm string
}

func newProfileModelCommand() *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "model FILE",
		Short: "Measure one model at every power-of-two batch and thread count",
		Long: `model prepares the model for this host, as instances do. It then runs batches of
1, 2, 4, … requests with realistic random inputs on 1, 2, 4, … threads, and prints the
median, 95th percentile and processor time of each. FILE is an ONNX file, or the
bundle.yaml of a bundle in Python or a model server.

With --device cuda, model measures an ONNX model on shares of an NVIDIA GPU instead, each
share in a process of its own. It starts an MPS daemon for that and ends it. With
$CUDA_MPS_PIPE_DIRECTORY it uses the one that runs there. It needs ONNX Runtime's GPU build.
Nothing else should use the GPU.`,
		Example: `  faas-infer profile model mnist.onnx
  faas-infer profile model mnist.onnx --max-batch 64 --threads 1 --until 50ms --json
  faas-infer profile model resnet-50.onnx --device cuda --shares 25,50,100 --batch 1,8,32`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.MaxBatch, "max-batch", 32, "largest batch to measure")
	f.IntSliceVar(&o.Batches, "batch", nil, "batch sizes to measure (default: the powers of two up to --max-batch)")
	f.IntVar(&o.Threads, "threads", 0, "largest number of threads (0: all cores of this machine)")
	o.DeviceOptions.flags(c)
	f.DurationVar(&o.Until, "until", 0, "stop increasing the batch once one takes longer than this (0: never)")
	f.StringVar(&o.Prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object")
	f.StringVar(&o.Out, "out", "", "also write the profile to this file")
	f.BoolVar(&o.Sketch, "sketch", false, "take about a second: one thread, and as many batches as there is time for")
	ShapesFlag(c.Flags(), &o.Shapes)
	MaxShapesFlag(c.Flags(), &o.MaxShapes)
	maxLengthFlag(c.Flags(), &o.MaxLength)
	o.TryFlags.Flags(c.Flags())
	f.StringVar(&o.Warm, "warm", "", "the directory where warm Python processes listen, for models in Python")
	return c
}

func (o *Options) run(ctx context.Context, file string, out io.Writer) error {
	if o.MaxBatch < 1 || o.Threads < 0 || o.Until < 0 {
		return errors.New("--max-batch must be at least 1, --threads and --until not negative")
	}
	if len(o.Batches) > 0 && slices.Min(o.Batches) < 1 {
		return fmt.Errorf("--batch is %v; each must be at least 1", o.Batches)
	}
	if err := o.DeviceOptions.check(); err != nil {
		return err
	}
	if err := checkFile(file); err != nil {
		return err
	}
	var err error
	if o.Shapes, err = o.TryFlags.Shapes(file, o.Shapes); err != nil {
		return err
	}
	measure := o.measure
	if o.Device == deviceCUDA {
		measure = o.measureDevice
	}
	measured, err := measure(ctx, file)
	if err != nil {
		return err
	}
	if o.Out != "" {
		if err := writeMeasured(*measured, o.Out); err != nil {
			return err
		}
	}
	return printProfile("profile model "+filepath.Base(file), measured.Profile, o.JSON, out)
}

// checkFile refuses what is often given instead of a model's file: a directory, or a name of the zoo.
func checkFile(file string) error {
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory; give the ONNX file in it, or the bundle.yaml of a bundle in Python or a model server", file)
	}
	if z, ok := zoo.Find(file); ok && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no file %s; make the model with `faas-infer model make %s`, and give its file", file, z.Name)
	}
	return nil
}

// printProfile prints a measured profile.
func printProfile(what string, p *profiler.Profile, asJSON bool, out io.Writer) error {
	r := report.New(what, time.Now())
	r.Machine = p.Machine
	for _, m := range p.Measurements {
		name := fmt.Sprintf("t%d.b%d.", m.Threads, m.Batch)
		if m.GPU > 0 {
			name = fmt.Sprintf("g%d.b%d.", m.GPU, m.Batch)
			r.Add(name+"in_us", m.In, "µs", "copy to the GPU, part of the median")
			r.Add(name+"compute_us", m.Compute, "µs", "on the GPU, part of the median")
			r.Add(name+"out_us", m.Out, "µs", "copy from the GPU, part of the median")
		}
		if m.DeviceMemory > 0 {
			r.Add(name+"gpu_memory_mib", float64(m.DeviceMemory)/(1<<20), "MiB", "of the GPU")
		}
		r.Add(name+"median_ms", m.Median/1000, "ms", fmt.Sprintf("%d runs", m.Runs))
		r.Add(name+"p95_ms", m.P95/1000, "ms", "")
		r.Add(name+"cpu_ms", m.CPU/1000, "ms", "")
	}
	if off, n := p.HeldOut(); n > 0 {
		r.Add("share.error_pct", 100*off, "%", fmt.Sprintf("mean error of %d times, each predicted from the next smaller and larger share", n))
	}
	r.Add("memory_mib", float64(p.Memory)/(1<<20), "MiB", "resident after the largest batch")
	if p.Own > 0 {
		r.Add("own_mib", float64(p.Own)/(1<<20), "MiB", "of an instance alone, beside the weights that it maps")
	}
	if asJSON {
		return r.JSON(out)
	}
	return r.Table(out)
}

// writeMeasured writes a result for the provider to a file.
func writeMeasured(m profiler.Measured, path string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

// measure prepares the model in a file and measures it as a whole.
func (o *Options) measure(ctx context.Context, file string) (*profiler.Measured, error) {
	if engines.IsManifest(file) {
		return o.measurePython(ctx, file)
	}
	read, err := model.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	dir, err := PreparedDir(o.Prepared)
	if err != nil {
		return nil, err
	}
	prepared, err := onnxruntime.Prepare(file, dir, onnxruntime.PrepareOptions{Shapes: o.Shapes, MaxRun: o.MaxRun})
	if err != nil {
		return nil, err
	}
	usual := usualShapes(o.Shapes, read, prepared)
	m, _, err := read.Sized(usual)
	if err != nil {
		return nil, fmt.Errorf("--shapes: %w", err)
	}
	if _, err := m.Graph(1); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	limited := *o
	limited.MaxBatch = largestBatch(o.MaxBatch, prepared)
	if prepared.Unbatched != "" {
		limited.Batches = nil
	}
	plan := limited.plan(processorTime)
	plan.Waited = waitedTime
	own, open := int64(0), openSamples(m, prepared)
	if prepared.MappedWeights() > 0 {
		open = noted(open, &own)
	}
	points, err := profiler.Measure(ctx, open, plan, report.ProgressBar(os.Stderr, "measuring "+filepath.Base(file)))
	if err != nil {
		return nil, err
	}
	memory, payloads := residentPeak(), measurePayloads(ctx, signatureOf(prepared))
	if prepared.AsInFile() {
		payloads = measurePayloads(ctx, Signature{m.Inputs(), m.Outputs()})
	}
	var sizes *profiler.Sizes
	if !o.Sketch {
		if sizes, err = measureSizes(ctx, read, prepared, usual, o.lengths, o.MaxBatch, measuredSizes); err != nil {
			return nil, err
		}
	}
	return &profiler.Measured{Prepared: prepared.Dir, Profile: &profiler.Profile{
		BySize: sizes,
		Model:  prepared.Content, Engine: onnxruntime.Name(), Machine: report.Machine(), Provisional: o.Sketch,
		Memory: memory, Own: own, Measurements: points, MeasuredAt: time.Now(),
		Payloads: payloads, Unbatched: prepared.Unbatched, Lengths: prepared.Lengths(),
	}}, nil
}

// plan returns what to measure.
func (o *Options) plan(cpu func() time.Duration) profiler.Plan {
	if o.Sketch {
		return profiler.Sketch(o.MaxBatch, o.Until, time.Now, cpu)
	}
	plan := profiler.Quick(o.MaxBatch, 1, o.Until, time.Now, cpu)
	plan.Threads = ThreadsUpTo(o.Threads)
	if len(o.Batches) > 0 {
		plan.Batches = o.Batches
	}
	return plan
}

// batches returns the batches to measure on a GPU.
func (o *Options) batches() []int {
	if len(o.Batches) > 0 {
		return o.Batches
	}
	return BatchesUpTo(o.MaxBatch)
}

// openSamples returns a function that opens a prepared model to run it on sample inputs.
func openSamples(m *model.Model, prepared onnxruntime.Prepared) func(threads int) (profiler.Runner, error) {
	return func(n int) (profiler.Runner, error) {
		e, err := onnxruntime.Open(onnxruntime.Options{Prepared: prepared.Dir, Threads: n})
		if err != nil {
			return nil, err
		}
		if prepared.AsInFile() {
			return samplesOf(e, m), nil
		}
		sample := func(batch int) ([]tensor.Tensor, error) { return e.Sample(batch), nil }
		return &sampleRunner{engine: e, sample: sample, inputs: map[int][]tensor.Tensor{}}, nil
	}
}

// samplesOf runs a model on its sample inputs.
func samplesOf(e *onnxruntime.Engine, m *model.Model) *sampleRunner {
	sample := func(batch int) ([]tensor.Tensor, error) { return m.SampleInputs(batch, uint64(batch)) }
	return &sampleRunner{engine: e, sample: sample, inputs: map[int][]tensor.Tensor{}}
}

// noted returns open with runners that note in own the largest anonymous memory in bytes that this process has
// before one is closed. The engine's arena still holds then what the largest batch took. That is more than an
// instance takes: this process has read the model's file, and may have prepared it.
func noted(open func(threads int) (profiler.Runner, error), own *int64) func(threads int) (profiler.Runner, error) {
	return func(n int) (profiler.Runner, error) {
		r, err := open(n)
		if err != nil {
			return nil, err
		}
		return noting{r, own}, nil
	}
}

type noting struct {
	profiler.Runner
	own *int64
}

func (r noting) Close() error {
	if m, err := instance.ReadMemory(0); err == nil {
		*r.own = max(*r.own, m.Anonymous)
	}
	return r.Runner.Close()
}

// sampleRunner executes a model on sample inputs, made once per batch size.
type sampleRunner struct {
	engine *onnxruntime.Engine
	sample func(batch int) ([]tensor.Tensor, error)
	inputs map[int][]tensor.Tensor
}

func (r *sampleRunner) Run(ctx context.Context, batch int) error {
	inputs, ok := r.inputs[batch]
	if !ok {
		var err error
		if inputs, err = r.sample(batch); err != nil {
			return err
		}
		clear(r.inputs)
		r.inputs[batch] = inputs
	}
	_, err := r.engine.Run(ctx, batch, inputs)
	return err
}

func (r *sampleRunner) Close() error { return r.engine.Close() }

// ThreadsUpTo returns the powers of two up to limit, or up to this machine's cores if
// limit is 0.
func ThreadsUpTo(limit int) []int {
	if limit == 0 {
		limit = runtime.NumCPU()
	}
	return powersOfTwo(limit)
}

func powersOfTwo(limit int) []int {
	var out []int
	for n := 1; n <= limit; n *= 2 {
		out = append(out, n)
	}
	return out
}

// processorTime returns the CPU time that all threads of this process have used so far.
func processorTime() time.Duration {
	u := ownUse()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ownUse returns what this process has used so far; the call fails only for wrong arguments.
func ownUse() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u
}

// waitedTime returns how long this process's threads have waited for a core.
func waitedTime() time.Duration {
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return 0
	}
	var sum int64
	for _, file := range files {
		text, _ := os.ReadFile(file) // A thread may have ended meanwhile.
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			ns, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += ns
		}
	}
	return time.Duration(sum)
}

// residentPeak returns the largest resident set of this process so far, in bytes.
func residentPeak() int64 { return ownUse().Maxrss << 10 }
