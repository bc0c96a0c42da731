package shares

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// Work is what to measure of a model on every share.
type Work struct {
	// Model is an ONNX file.
	Model string
	// Shapes are the sizes of its free dimensions, nil for assumed ones.
	Shapes tensor.Shapes
	// Shares are in % of the GPU's SMs, ascending.
	Shares, Batches []int
	// Until skips larger batches once one takes longer, 0 for none.
	Until time.Duration
	// Plain runs without CUDA graphs.
	Plain bool
	// TimesOnly leaves out the memory of the GPU, which needs another opening for each batch.
	TimesOnly bool
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
		if i == len(w.Shares)-1 && !w.TimesOnly {
			arguments = append(arguments, "--memory")
		}
		if w.Shapes != nil {
			arguments = append(arguments, "--shapes", w.Shapes.String())
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
	// Model, Shapes, Batches, Until and Plain are those of [Work].
	Model   string
	Shapes  tensor.Shapes
	Batches []int
	Until   time.Duration
	Plain   bool
	// Percent is the share that the process has.
	Percent int
	// Memory measures the memory of the GPU by batch.
	Memory bool
	// Held is the memory of the GPU that this process and all processes hold.
	Held func() Holding
	// Open opens the model. CPU is the processor time that this process has used so far, Peak
	// its largest resident set in bytes.
	Open func(file string, batches []int, plain bool) (Engine, error)
	CPU  func() time.Duration
	Peak func() int64
	// Log gets lines for people about what was done.
	Log io.Writer
}

// Engine runs one model on the GPU.
type Engine interface {
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
	// Times are those of the last run.
	Times() profiler.DeviceTimes
	// Memory is what the engine holds of the GPU in bytes, 0 if it is unknown. Lanes are the
	// parts of it that each batch size takes alone, nil if batch sizes share all.
	Memory() (int64, error)
	Lanes() map[int]int64
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
func (c Child) Measure(ctx context.Context) (out Result, err error) {
	m, err := model.ReadOutline(c.Model) // Its weights would stay in this process, outside the engine's.
	if err != nil {
		return out, err
	}
	if m, _, err = m.Sized(c.Shapes); err != nil {
		return out, fmt.Errorf("--shapes: %w", err)
	}
	var before Holding
	if c.Memory {
		before = c.Held()
	}
	var source string
	open := func(batches []int) (*runner, error) {
		e, err := c.Open(c.Model, batches, c.Plain)
		return &runner{Engine: e, model: m, before: before, held: c.Held, source: &source}, err
	}
	began := time.Now()
	r, err := open(c.Batches)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out.Note = r.Note()
	opened := time.Now()
	out.Measurements, err = profiler.MeasureDevice(ctx, r, profiler.DevicePlan{
		GPU: c.Percent, Batches: c.Batches, Until: c.Until, Window: span, MaxTime: patience, Now: time.Now, CPU: c.CPU,
	})
	measured := time.Now()
	if err == nil && c.Memory {
		err = c.memory(ctx, r, open, out.Measurements)
		out.Note = strings.TrimPrefix(out.Note+source, "; ")
	}
	out.Memory = c.Peak()
	fmt.Fprintf(c.Log, "opening %.1f s, runs %.1f s, memory %.1f s\n", opened.Sub(began).Seconds(), measured.Sub(opened).Seconds(), time.Since(measured).Seconds())
	return out, err
}

// memory measures how much memory of the GPU an instance needs for batches up to each measured
// one. Where batch sizes share a session, an engine is opened for each alone.
func (c Child) memory(ctx context.Context, r *runner, open func(batches []int) (*runner, error), to []profiler.Measurement) error {
	lanes := r.Lanes()
	if lanes != nil {
		held, err := r.Memory()
		for i := range to {
			to[i].DeviceMemory = instanceMemory(held, lanes, cuda.Buckets(to[i].Batch))
		}
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	for i := range to {
		one, err := open([]int{to[i].Batch})
		if err != nil {
			return err
		}
		_, err = one.Run(ctx, to[i].Batch)
		if err == nil {
			to[i].DeviceMemory, err = one.Memory()
		}
		if err = errors.Join(err, one.Close()); err != nil {
			return err
		}
	}
	return nil
}

// instanceMemory is what an instance with lanes of some batch sizes holds, in bytes. A process with
// the lanes that are given holds held. A batch size that has none takes as much as the next larger.
func instanceMemory(held int64, lanes map[int]int64, batches []int) int64 {
	for _, bytes := range lanes {
		held -= bytes
	}
	sizes := slices.Sorted(maps.Keys(lanes))
	for _, b := range batches {
		at, _ := slices.BinarySearch(sizes, b)
		held += lanes[sizes[min(at, len(sizes)-1)]]
	}
	return held
}

// runner executes a model on sample inputs, made once per batch size.
type runner struct {
	Engine
	model  *model.Model
	batch  int
	inputs []tensor.Tensor
	// held reads the memory of the GPU, before is that before the engine was opened. Memory says in
	// source where its figure comes from, unless that is the driver's of this process.
	held   func() Holding
	before Holding
	source *string
	closed bool
}

// Close closes the engine once.
func (r *runner) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return r.Engine.Close()
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

// The sources of a figure of memory that other processes or the engine's ignorance can falsify.
const (
	fromAll    = "; memory is what all processes took of the GPU meanwhile, as the driver does not say what this one holds"
	fromEngine = "; memory is that which the engine knows, without CUDA's context, as the driver says nothing"
)

// Memory is what this process holds of the GPU. The driver's figure counts what the engine does
// not know: the context, and the kernels' code and stacks. Where the driver says only what all
// processes hold, nothing else may start on the GPU meanwhile.
func (r *runner) Memory() (int64, error) {
	least, err := r.Engine.Memory()
	if err != nil {
		return 0, err
	}
	now := r.held()
	if now.OwnKnown && now.Own >= max(1, least) { // Less would be another process's of the same pid.
		return now.Own, nil
	}
	if all := now.All - r.before.All; now.AllKnown && r.before.AllKnown && all >= max(1, least) {
		*r.source = fromAll
		return all, nil
	}
	*r.source = fromEngine
	return least, nil
}
