package onnxruntime

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say which model to open and how much of the machine to use.
type Options struct {
	// Model is the ONNX file, which ONNX Runtime optimises at every Open. Prepared is
	// the directory of a prepared model. Prepared takes precedence.
	Model    string
	Prepared string
	// Shapes are sizes for the free dimensions of Model's inputs, nil for guesses.
	Shapes tensor.Shapes
	// Divided opens the form of the prepared model whose weights its segments share, even if
	// another loads sooner.
	Divided bool
	// Threads is the number of computing threads, at least 1. More threads than the
	// instance's CPU share can feed make it slower.
	Threads int
	// MemoryLimit limits in bytes what the engine allocates for activations and for
	// its own copies of weights, 0 for no limit. A batch that needs more gets an error.
	// Without a limit the kernel would kill the whole process.
	MemoryLimit int64
}

// Engine is one loaded model. It is safe for concurrent use and runs one batch
// at a time.
type Engine struct {
	signature
	mu      sync.Mutex
	session *ort.DynamicAdvancedSession
	run     *ort.RunOptions
	load    time.Duration
	// expected is the measured time of a run of one row, 0 if it was not measured.
	expected time.Duration
}

// Open loads a model. Call Load first.
func Open(o Options) (*Engine, error) {
	if o.Threads < 1 {
		return nil, fmt.Errorf("threads is %d; it must be at least 1", o.Threads)
	}
	start := time.Now()
	if err := limitMemory(o.MemoryLimit); err != nil {
		return nil, err
	}
	form, err := formOf(o)
	if err != nil {
		return nil, err
	}
	e, err := open(form, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", form.path, err)
	}
	e.load, e.expected = time.Since(start), form.run
	return e, nil
}

// form is a model file and how to load it.
type form struct {
	path      string
	level     ort.GraphOptimizationLevel
	settings  []setting
	signature signature
	run       time.Duration // time of one row, 0 if not measured
	save      string        // where to write the optimised model, "" for nowhere
	// quiet: failures of runs are expected, so ONNX Runtime does not print them.
	quiet bool
	// data is the model itself, nil if it is in the file. path is then the directory of its
	// weights.
	data []byte
}

func formOf(o Options) (form, error) {
	if o.Prepared != "" {
		p, err := ReadPrepared(o.Prepared)
		if err != nil {
			return form{}, err
		}
		if o.Divided {
			p = p.divided()
		}
		return p.form(), nil
	}
	f, err := adaptFile(o.Model, PrepareOptions{Shapes: o.Shapes}, false)
	if err != nil {
		return form{}, fmt.Errorf("loading %s: %w", o.Model, err)
	}
	return f, nil
}

func open(f form, threads int) (e *Engine, err error) {
	settings := append(f.signature.settings(), f.settings...)
	if memoryLimited() {
		settings = append(settings, setting{"session.use_env_allocators", "1"})
	}
	if f.data != nil {
		settings = append(settings, folder(f.path))
	}
	options, err := newOptions(threads, f.level, settings...)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	if f.quiet {
		if err := options.SetLogSeverityLevel(ort.LoggingLevelFatal); err != nil {
			return nil, plain(err)
		}
	}
	if f.save != "" {
		if err := options.SetOptimizedModelFilePath(f.save); err != nil {
			return nil, err
		}
	}
	session, err := newSession(f, options)
	if err != nil {
		return nil, err
	}
	run, err := ort.NewRunOptions()
	if err != nil {
		session.Destroy()
		return nil, plain(err)
	}
	return &Engine{signature: f.signature, session: session, run: run}, nil
}

// Inputs describes the model's inputs in the order in which Run takes them.
func (e *Engine) Inputs() []tensor.Info { return e.signature.Inputs }

// Outputs describes the model's outputs in the order in which Run gives them.
func (e *Engine) Outputs() []tensor.Info { return e.signature.Outputs }

// Unbatched says why the model takes one request an execution, "" if rows of several requests
// can be joined. Run then takes one row, which is a whole request.
func (e *Engine) Unbatched() string { return e.signature.Unbatched }

// Padding says how rows of different lengths run together. It is nil if they do not, or if that was not tried.
func (e *Engine) Padding() *ragged.Padding { return e.signature.Padding }

// LoadTime returns how long Open took.
func (e *Engine) LoadTime() time.Duration { return e.load }

// ExpectedRun returns the time of one row on one thread, measured by Prepare, and at least that time for a linked
// model ([Link]). It is 0 for a model that was not prepared.
func (e *Engine) ExpectedRun() time.Duration { return e.expected }

// Run computes one batch. inputs are all of the model's inputs in its order,
// each with rows as its first dimension. Their data is read in place and must not
// change meanwhile. The outputs belong to the caller. When ctx ends, the run stops
// after the current operator.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	return e.RunInto(ctx, rows, inputs, nil)
}

// RunInto is [Engine.Run] with the outputs' memory: into[i] is output i's, nil for new memory.
// An output of another size, or memory that is not aligned for its elements, is an error.
func (e *Engine) RunInto(ctx context.Context, rows int, inputs []tensor.Tensor, into [][]byte) ([]tensor.Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return nil, fmt.Errorf("the model is closed")
	}
	if rows < 1 {
		return nil, fmt.Errorf("a batch of %d rows", rows)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	in, err := e.bindInputs(rows, inputs, &pinned)
	defer destroy(in)
	if err != nil {
		return nil, err
	}
	outputs, out, err := e.bindOutputs(rows, into, &pinned)
	defer func() { destroy(out) }()
	if err != nil {
		return nil, err
	}
	if err := e.execute(ctx, in, out); err != nil {
		return nil, err
	}
	return outputs, e.collect(rows, outputs, out)
}

func (e *Engine) bindInputs(rows int, inputs []tensor.Tensor, pinned *runtime.Pinner) ([]ort.Value, error) {
	if len(inputs) != len(e.signature.Inputs) {
		return nil, fmt.Errorf("%d inputs for a model with %d", len(inputs), len(e.signature.Inputs))
	}
	values := make([]ort.Value, 0, len(inputs))
	for i, t := range inputs {
		if t.Type != e.signature.Inputs[i].Type || len(t.Shape) == 0 || t.Shape[0] != int64(rows) {
			return values, fmt.Errorf("input %q is %s %v, the batch has %d rows of %s",
				t.Name, t.Type, t.Shape, rows, e.signature.Inputs[i].Type)
		}
		v, err := newValue(t.Type, t.Shape, t.Data, pinned)
		if err != nil {
			return values, fmt.Errorf("input %q: %w", t.Name, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// bindOutputs allocates the outputs whose shapes are known, unless into has memory for them: ONNX
// Runtime writes directly into them. The others stay nil.
func (e *Engine) bindOutputs(rows int, into [][]byte, pinned *runtime.Pinner) ([]tensor.Tensor, []ort.Value, error) {
	outputs := make([]tensor.Tensor, len(e.signature.Outputs))
	values := make([]ort.Value, len(outputs))
	for i, info := range e.signature.Outputs {
		shape, known := shapeFor(info, rows)
		known = known && !e.signature.wide(i)
		outputs[i] = tensor.Tensor{Name: info.Name, Type: info.Type, Shape: shape}
		given := i < len(into) && into[i] != nil
		if !known && !given {
			continue
		}
		if !known {
			return nil, values, fmt.Errorf("output %q has the open shape %v; its memory cannot be given", info.Name, info.Shape)
		}
		size, err := bytesOf(info.Type, shape)
		if err != nil {
			return nil, values, fmt.Errorf("output %q: %w", info.Name, err)
		}
		if outputs[i].Data, err = place(into, i, size, info.Type); err != nil {
			return nil, values, fmt.Errorf("output %q: %w", info.Name, err)
		}
		if values[i], err = newValue(info.Type, shape, outputs[i].Data, pinned); err != nil {
			return nil, values, fmt.Errorf("output %q: %w", info.Name, err)
		}
	}
	return outputs, values, nil
}

// place is the memory for output i: that which into has, or new.
func place(into [][]byte, i, size int, t tensor.Type) ([]byte, error) {
	if i >= len(into) || into[i] == nil {
		return make([]byte, size), nil
	}
	if len(into[i]) != size || size > 0 && uintptr(unsafe.Pointer(&into[i][0]))%uintptr(t.Size()) != 0 {
		return nil, fmt.Errorf("it has %d bytes, and its memory %d, or that is not aligned", size, len(into[i]))
	}
	return into[i], nil
}

func (e *Engine) execute(ctx context.Context, in, out []ort.Value) error {
	err := e.compute(ctx, in, out)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return runError(err)
}

// compute runs the session until ctx ends. The error is the binding's.
func (e *Engine) compute(ctx context.Context, in, out []ort.Value) error {
	if ctx.Done() != nil {
		terminated := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(terminated)
			e.run.Terminate()
		})
		defer func() {
			if !stop() {
				<-terminated
				e.run.UnsetTerminate()
			}
		}()
	}
	defer e.signature.denormals()()
	return e.session.RunWithOptions(in, out, e.run)
}

// collect fills in the outputs that ONNX Runtime allocated itself.
func (e *Engine) collect(rows int, outputs []tensor.Tensor, out []ort.Value) error {
	for i := range outputs {
		if outputs[i].Data != nil {
			continue
		}
		if out[i] == nil {
			return fmt.Errorf("output %q was not computed", outputs[i].Name)
		}
		outputs[i].Shape = out[i].GetShape()
		if len(outputs[i].Shape) == 0 || outputs[i].Shape[0] != int64(rows) {
			return fmt.Errorf("output %q has the shape %v for %d rows, so it cannot be split",
				outputs[i].Name, outputs[i].Shape, rows)
		}
		data, err := dataOf(out[i])
		if err != nil {
			return fmt.Errorf("output %q: %w", outputs[i].Name, err)
		}
		if e.signature.wide(i) {
			data = outputs[i].Type.Narrow(data)
		}
		outputs[i].Data = data
	}
	return nil
}

// Close frees the model, after a run in progress has ended.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return nil
	}
	err := e.session.Destroy()
	e.run.Destroy()
	e.session = nil
	return plain(err)
}

// newValue wraps data without a copy if its address is aligned for the elements.
// Strings are copied.
func newValue(t tensor.Type, shape ort.Shape, data []byte, pinned *runtime.Pinner) (ort.Value, error) {
	if t == tensor.Bytes {
		return newStrings(shape, data)
	}
	size, err := bytesOf(t, shape)
	if err != nil {
		return nil, err
	}
	if size != len(data) {
		return nil, fmt.Errorf("%d bytes for %s %v, which takes %d", len(data), t, []int64(shape), size)
	}
	if size == 0 { // The binding wants memory for no element, too.
		data = make([]byte, t.Size())
	}
	// Compiled kernels rely on aligned elements.
	if uintptr(unsafe.Pointer(&data[0]))%uintptr(t.Size()) != 0 {
		data = append(make([]byte, 0, size), data...)
	}
	pinned.Pin(&data[0])
	return ort.NewCustomDataTensor(shape, data, elementTypes[t])
}

func destroy(values []ort.Value) {
	for _, v := range values {
		if v != nil {
			v.Destroy()
		}
	}
}
