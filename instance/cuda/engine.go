// Package cuda is the engine that runs ONNX models on an NVIDIA GPU, in the instance's own
// process: ONNX Runtime's CUDA provider on our streams, device memory and pinned memory. It
// decides neither what share of the GPU the process has (package gpu) nor which requests form
// a batch. Begin with [Open].
//
// Short kernels of small models take less time than their launches. So runs of the batch sizes
// 1, 2, 4, … are captured as CUDA graphs, and Run launches one. The captures are our own and not
// the provider's, which keeps its graphs for each thread and waits for each. They are made after
// Open, while requests come: see [Engine.Wait].
//
// Products of 32-bit numbers have 19 bits (TF32), as is ONNX Runtime's default: resnet-50 then
// takes 1.8 ms instead of 4.0 on an H100, and answers differ from the CPU's by some 0.2 %. The
// environment variable NVIDIA_TF32_OVERRIDE=0 turns this off.
package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// tf32 is the variable of CUDA's libraries that is "0" for products of full 32-bit numbers.
const tf32 = "NVIDIA_TF32_OVERRIDE"

// Options say which model to open and how much of the device to use.
type Options struct {
	// Model is the ONNX file.
	Model string
	// Library is ONNX Runtime's GPU build, by default that of `make onnxruntime-cuda`.
	Library string
	// Copies is the directory in which the model is kept as ONNX Runtime optimised it for this
	// kind of GPU, so that the next engine loads it sooner and maps its weights; "" for none.
	// Content is the model's [model.ContentHash], which is calculated if it is "".
	Copies, Content string
	// MaxBatch is the maximum number of rows of a run, at least 1.
	MaxBatch int
	// Memory limits in bytes what ONNX Runtime allocates on the device, 0 for no limit.
	Memory int64
	// Batches are the batch sizes that are prepared, up to MaxBatch, by default [Buckets]. Runs
	// of other numbers of rows take longer.
	Batches []int
	// Single prepares no batch size until [Engine.Prepare], and then one at a time, to measure
	// many models for a short time each. Open makes no first run.
	Single bool
	// Plain runs without CUDA graphs.
	Plain bool
	// Exhaustive tries all algorithms of convolutions at the first run of each batch size. By
	// default cuDNN's heuristic chooses.
	Exhaustive bool
	// onHost runs on the CPU in the host's memory, for tests with a model of the driver.
	onHost bool
}

// Stage is one part of Open, or of what follows it, with its time in ms.
type Stage struct {
	Name         string  `json:"name"`
	Milliseconds float64 `json:"ms"`
}

// Names of the stages of Open.
const (
	StageLibrary  = "library"
	StageDriver   = "driver"
	StageDevice   = "device"
	StageContext  = "context"
	StageProvider = "provider"
	StageSession  = "session"
	StageBuffers  = "buffers"
	StageFirstRun = "first run"
)

// Times are the times of one run on the device in µs: the copy of the inputs, the model, the
// copy of the outputs.
type Times struct {
	In, Compute, Out float64
}

func (t *Times) add(other Times) {
	t.In, t.Compute, t.Out = t.In+other.In, t.Compute+other.Compute, t.Out+other.Out
}

// Engine is one loaded model. It is safe for concurrent use and runs one batch at a time.
type Engine struct {
	options         Options
	inputs, outputs []tensor.Info
	// onHost are the inputs that nodes on the host read.
	onHost  []bool
	buckets []int
	opened  time.Duration
	copy    optimised
	// fromCopy is set if Open loaded the copy.
	fromCopy bool
	// weights are those of the copy on the device, nil if every session has its own.
	weights *weights
	// baseline is the device's free memory in bytes before the engine took any.
	baseline int64
	c        *C.engine
	// apart is set if each bucket has a lane of its own: see plans. Otherwise one lane has all.
	// capturable is set if graphs are tried.
	apart, capturable bool
	// cancel ends complete, which closes completed at its end.
	cancel    context.CancelFunc
	completed chan struct{}

	// failed gets the error after which the context cannot be used any more.
	failed chan error

	// mu is held for each Run.
	mu     sync.Mutex
	closed bool
	lanes  []*lane
	// ready has the lane of each batch size whose graph is launched, or in an engine with lanes
	// apart, whose lane is open.
	ready map[int]*lane
	// held are the device's bytes that each batch size's own lane took.
	held   map[int]int64
	whyNot string
	stages []Stage
	times  Times
}

// Open loads a model onto the first GPU that the process sees. It returns after the first run
// of one row; larger batches get faster until [Engine.Wait] returns. The error wraps
// [ErrDevice] if that is not possible for another reason than the model.
func Open(o Options) (*Engine, error) {
	if o.MaxBatch < 1 {
		return nil, fmt.Errorf("the maximum batch is %d; it must be at least 1", o.MaxBatch)
	}
	prepared, err := sizes(o)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	e := &Engine{
		options: o, buckets: prepared, ready: map[int]*lane{}, held: map[int]int64{}, completed: make(chan struct{}),
		failed: make(chan error, 1),
		c:      (*C.engine)(C.calloc(1, C.sizeof_engine)),
	}
	first := e.newLane(o.MaxBatch, o.Memory)
	e.lanes = []*lane{first}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	restore := keepSignals()
	err = first.thread.do(func() error { return e.open(first) })
	if err = errors.Join(err, restore()); err != nil {
		close(e.completed)
		return nil, errors.Join(err, e.Close())
	}
	e.opened = time.Since(start)
	if e.whyNot = e.uncapturable(); e.whyNot == "" {
		e.capturable = true
	}
	if e.apart {
		e.ready[e.buckets[0]] = first
	}
	if !o.Single && (e.apart || e.capturable) || e.copy.work != nil {
		go e.complete(ctx)
	} else {
		close(e.completed)
	}
	return e, nil
}

// sizes are the batch sizes to prepare, ascending.
func sizes(o Options) ([]int, error) {
	if len(o.Batches) == 0 {
		return Buckets(o.MaxBatch), nil
	}
	all := slices.Compact(slices.Sorted(slices.Values(o.Batches)))
	if all[0] < 1 || all[len(all)-1] > o.MaxBatch {
		return nil, fmt.Errorf("the batch sizes are %v; each must be from 1 to the maximum batch, %d", o.Batches, o.MaxBatch)
	}
	return all, nil
}

// open is Open on the first lane's thread.
func (e *Engine) open(l *lane) error {
	var version C.int
	device := []func() error{
		e.stage(StageLibrary, func() error { return load(e.options.Library) }),
		e.stage(StageDriver, openDriver),
		e.stage(StageDevice, func() error { return failed(C.device_open(&version)) }),
		e.stage(StageContext, e.openContext),
		l.openStream,
		e.stage(StageProvider, l.provide),
	}
	for _, step := range device {
		if err := step(); err != nil {
			return refused(err)
		}
	}
	model := []func() error{
		e.stage(StageSession, func() error { return e.openModel(l) }),
		e.stage(StageBuffers, l.openBuffers),
		e.stage(StageFirstRun, func() error { return e.firstRun(l) }),
	}
	for _, step := range model {
		if err := step(); err != nil {
			return fmt.Errorf("loading %s: %w", e.options.Model, err)
		}
	}
	return nil
}

// stage measures a part of Open and names it in its error.
func (e *Engine) stage(name string, do func() error) func() error {
	return func() error {
		start := time.Now()
		err := do()
		e.stages = append(e.stages, Stage{name, milliseconds(time.Since(start))})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (e *Engine) openContext() error {
	if err := failed(C.device_context(e.c)); err != nil {
		return err
	}
	name := "Cuda"
	if e.options.onHost {
		name = "Cpu"
	}
	memory := C.CString(name)
	defer C.free(unsafe.Pointer(memory))
	if err := failed(C.engine_open(e.c, memory)); err != nil {
		return err
	}
	free, _, err := e.deviceMemory()
	e.baseline = free
	return err
}

// openModel opens the first session and decides whether batch sizes get lanes of their own.
func (e *Engine) openModel(l *lane) error {
	if err := e.findCopy(); err != nil {
		return err
	}
	var err error
	e.weights, err = openWeights(context.Background(), e)
	e.copy.failed(err)
	if err := l.openSession(); err != nil {
		return err
	}
	if err := e.describe(l); err != nil {
		return err
	}
	if !e.options.Plain && !e.options.Single && e.static() == "" && plans(e.options.Model) {
		e.apart, l.rows = true, e.buckets[0]
	}
	return nil
}

// deviceMemory returns the free and the whole memory of the device in bytes.
func (e *Engine) deviceMemory() (free, total int64, err error) {
	var f, t C.size_t
	err = failed(C.device_memory(e.c, &f, &t))
	return int64(f), int64(t), err
}

// Inputs describes the model's inputs in the order in which Run takes them.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs describes the model's outputs in the order in which Run gives them.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// LibraryTime returns how long the libraries, the device and its context took to open.
func (e *Engine) LibraryTime() time.Duration {
	return e.spent(StageLibrary, StageDriver, StageDevice, StageContext, StageProvider)
}

// LoadTime returns how long the model took to load, without the libraries and the first run.
func (e *Engine) LoadTime() time.Duration { return e.opened - e.LibraryTime() - e.FirstRun() }

// FirstRun returns how long the run of one row took in Open, 0 if there was none.
func (e *Engine) FirstRun() time.Duration { return e.spent(StageFirstRun) }

// Opened returns how long Open took.
func (e *Engine) Opened() time.Duration { return e.opened }

// spent is the time of stages.
func (e *Engine) spent(names ...string) (total time.Duration) {
	for _, s := range e.Stages() {
		if slices.Contains(names, s.Name) {
			total += time.Duration(s.Milliseconds * float64(time.Millisecond))
		}
	}
	return total
}

// Wait waits until runs of all batch sizes are as fast as they get: their graphs are captured,
// or WhyNot has the reason why not. Its error is ctx's.
func (e *Engine) Wait(ctx context.Context) error {
	select {
	case <-e.completed:
		return nil
	default:
	}
	select {
	case <-e.completed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AfterWait calls done in the background with the result of [Engine.Wait].
func AfterWait(ctx context.Context, e *Engine, done func(error)) {
	go func() { done(e.Wait(ctx)) }()
}

// Stages returns the parts of Open and of the preparation after it, in their order.
func (e *Engine) Stages() []Stage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.stages)
}

// Graphs reports whether runs of all batch sizes launch CUDA graphs.
func (e *Engine) Graphs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whyNot == "" && len(e.ready) == len(e.buckets)
}

// WhyNot says why some runs launch no graphs, "" if all do, or will once they are captured.
func (e *Engine) WhyNot() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whyNot
}

// Nodes returns the number of nodes by type in the graph of each batch size that was captured,
// also of those that are not launched.
func (e *Engine) Nodes() map[int]map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[int]map[string]int{}
	for _, l := range e.lanes {
		maps.Copy(all, l.nodes())
	}
	return all
}

// Times returns the times of the last run.
func (e *Engine) Times() Times {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.times
}

// Memory returns the bytes of the device that the engine holds: weights, ONNX Runtime's arena,
// handles of CUDA's libraries and buffers, without the CUDA context. It is the difference of
// the device's free memory, so nothing else may use the device.
func (e *Engine) Memory() (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, errClosed
	}
	free, _, err := e.deviceMemory()
	return e.baseline - free, err
}

// Lanes returns the device's bytes that the session of each batch size holds, nil if one session
// is for all. See Memory for what else must hold.
func (e *Engine) Lanes() map[int]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.apart {
		return nil
	}
	return maps.Clone(e.held)
}

var errClosed = errors.New("the model is closed")

// Run computes one batch of at most MaxBatch rows. inputs are all of the model's inputs in its
// order, each with rows as its first dimension. The outputs belong to the caller. A run that
// has begun is not interrupted.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.accept(ctx, rows, inputs); err != nil {
		return nil, err
	}
	e.times = Times{}
	if e.apart {
		return e.inParts(rows, inputs)
	}
	if e.options.Single && e.ready[rows] == nil {
		return nil, fmt.Errorf("a batch of %d is not prepared", rows)
	}
	size := bucketFor(e.buckets, rows)
	if e.ready[size] == nil {
		size = rows
	}
	outputs, times, err := e.lanes[0].run(size, rows, inputs)
	e.times = times
	return outputs, examined(e, err)
}

// accept refuses a batch that cannot be run. The caller holds the lock.
func (e *Engine) accept(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	if e.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := check(e.inputs, rows, inputs); err != nil {
		return err
	}
	if rows > e.options.MaxBatch {
		return fmt.Errorf("%d rows; the engine takes %d at once", rows, e.options.MaxBatch)
	}
	return nil
}

// inParts runs a batch on the lanes that are open, in several runs if it must.
func (e *Engine) inParts(rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	var all []tensor.Tensor
	from := 0
	for _, size := range parts(slices.Sorted(maps.Keys(e.ready)), rows) {
		n := min(size, rows-from)
		outputs, times, err := e.ready[size].run(size, n, rowsOf(inputs, from, n))
		if err != nil {
			return nil, examined(e, err)
		}
		e.times.add(times)
		all, from = joined(all, outputs), from+n
	}
	return all, nil
}

// Close frees the model, after a run in progress has ended.
func (e *Engine) Close() error {
	e.cancel()
	<-e.completed
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var err error
	for _, l := range e.lanes {
		err = errors.Join(err, l.close())
	}
	e.weights.close(e)
	e.copy.abandon()
	C.engine_close(e.c)
	C.free(unsafe.Pointer(e.c))
	C.host_trim()
	return err
}
