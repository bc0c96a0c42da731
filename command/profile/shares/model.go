package shares

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// Work is what to measure of a model on every share.
type Work struct {
	// Model is an ONNX file.
	Model string
	// Shares are in % of the GPU's SMs, ascending.
	Shares, Batches []int
	// Until skips larger batches once one takes longer, 0 for none.
	Until time.Duration
	// Plain runs without CUDA graphs.
	Plain bool
}

// Result is what a child has measured.
type Result struct {
	Measurements []profiler.Measurement `json:"measurements"`
	// Memory is the process's largest resident set in bytes.
	Memory int64 `json:"memory"`
	// Note says what is unlike other models, for people, "" for nothing.
	Note string `json:"note,omitempty"`
}

// Model measures a model on each share in turn, and reports finished shares to progress. Memory
// of the GPU is measured on the largest share, which comes last: the MPS server, which belongs
// to no instance, runs by then.
func (c *Card) Model(ctx context.Context, w Work, progress func(done, total int)) (all Result, err error) {
	for i, percent := range w.Shares {
		progress(i, len(w.Shares))
		arguments := []string{"profile", "share", "--model", w.Model, "--gpu-share", strconv.Itoa(percent), "--batch", list(w.Batches),
			"--until", w.Until.String(), "--gpu", c.device.UUID}
		if i == len(w.Shares)-1 {
			arguments = append(arguments, "--memory")
		}
		if w.Plain {
			arguments = append(arguments, "--plain")
		}
		var one Result
		if err := c.Run(ctx, percent, &one, arguments...); err != nil {
			return all, err
		}
		all.Measurements = append(all.Measurements, one.Measurements...)
		all.Memory, all.Note = max(all.Memory, one.Memory), one.Note
	}
	progress(len(w.Shares), len(w.Shares))
	return all, nil
}

func list(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}

// Child is the work of one child process.
type Child struct {
	// Model, Batches, Until and Plain are those of [Work].
	Model   string
	Batches []int
	Until   time.Duration
	Plain   bool
	// Percent is the share that the process has.
	Percent int
	// Memory measures the memory of the GPU by batch.
	Memory bool
	// Held is the memory of the GPU that all processes hold, in bytes, and false if it is
	// unknown.
	Held func() (int64, bool)
	// Open opens the model. CPU is the processor time that this process has used so far, Peak
	// its largest resident set in bytes.
	Open func(file string, maxBatch int, plain bool) (Engine, error)
	CPU  func() time.Duration
	Peak func() int64
}

// Engine runs one model on the GPU.
type Engine interface {
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
	// Times are those of the last run.
	Times() profiler.DeviceTimes
	// Memory is what the engine holds of the GPU in bytes, 0 if it is unknown.
	Memory() (int64, error)
	// Note is that of [Result].
	Note() string
	Close() error
}

const (
	// span is the time of a window of runs, patience the maximum time of a batch. A GPU
	// takes about half a second to settle its clocks.
	span     = 40 * time.Millisecond
	patience = 1500 * time.Millisecond
)

// Measure does the child's work.
func (c Child) Measure(ctx context.Context) (Result, error) {
	var out Result
	m, err := model.ReadFile(c.Model)
	if err != nil {
		return out, err
	}
	before, known := int64(0), false
	if c.Memory {
		before, known = c.Held()
	}
	open := func(maxBatch int) (profiler.DeviceRunner, error) {
		e, err := c.Open(c.Model, maxBatch, c.Plain)
		if err != nil {
			return nil, err
		}
		out.Note = e.Note()
		return &runner{Engine: e, model: m, held: func() (int64, bool) {
			now, ok := c.Held()
			return now - before, known && ok
		}}, nil
	}
	out.Measurements, err = profiler.MeasureDevice(ctx, open, profiler.DevicePlan{
		GPU: c.Percent, Batches: c.Batches, Each: c.Memory, Until: c.Until, Window: span, MaxTime: patience, Now: time.Now, CPU: c.CPU,
	}, nil)
	out.Memory = c.Peak()
	return out, err
}

// runner executes a model on sample inputs, made once per batch size.
type runner struct {
	Engine
	model  *model.Model
	batch  int
	inputs []tensor.Tensor
	held   func() (int64, bool)
}

// Run implements [profiler.DeviceRunner].
func (r *runner) Run(ctx context.Context, batch int) (profiler.DeviceTimes, error) {
	if r.batch != batch {
		inputs, err := r.model.SampleInputs(batch, uint64(batch))
		if err != nil {
			return profiler.DeviceTimes{}, err
		}
		r.batch, r.inputs = batch, inputs
	}
	_, err := r.Engine.Run(ctx, batch, r.inputs)
	return r.Times(), err
}

// Memory implements [profiler.DeviceRunner]. The driver's figure counts what the engine does
// not know: the context, and the kernels' code and stacks. Nothing else may use the GPU
// meanwhile.
func (r *runner) Memory() (int64, error) {
	if held, ok := r.held(); ok && held > 0 {
		return held, nil
	}
	return r.Engine.Memory()
}
