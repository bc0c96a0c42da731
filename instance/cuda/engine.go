// Package cuda is the engine that runs ONNX models on an NVIDIA GPU, in the instance's own
// process: ONNX Runtime's CUDA provider on our stream, device memory and pinned memory. It
// decides neither what share of the GPU the process has (package gpu) nor which requests form
// a batch. Begin with [Open].
//
// Short kernels of small models take less time than their launches. So Open captures the run
// of each batch size as a CUDA graph, and Run launches one. The capture is our own and not the
// provider's, which keeps its graphs for each thread and waits for each.
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
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say which model to open and how much of the device to use.
type Options struct {
	// Model is the ONNX file.
	Model string
	// Library is ONNX Runtime's GPU build, by default [onnxruntime.LibraryPath].
	Library string
	// MaxBatch is the maximum number of rows of a run, at least 1.
	MaxBatch int
	// Memory limits in bytes what ONNX Runtime allocates on the device, 0 for no limit.
	Memory int64
	// Plain runs without CUDA graphs.
	Plain bool
	// Exhaustive tries all algorithms of convolutions at the first run of each batch size. By
	// default cuDNN's heuristic chooses.
	Exhaustive bool
	// TF32 allows 19-bit products of 32-bit numbers: faster and less exact.
	TF32 bool
	// onHost runs on the CPU in the host's memory, for tests with a model of the driver.
	onHost bool
}

// Stage is one part of Open with its time in ms.
type Stage struct {
	Name         string  `json:"name"`
	Milliseconds float64 `json:"ms"`
}

// Times are the times of one run on the device in µs: the copy of the inputs, the model, the
// copy of the outputs.
type Times struct {
	In, Compute, Out float64
}

// Engine is one loaded model. It is safe for concurrent use and runs one batch at a time.
type Engine struct {
	inputs, outputs []tensor.Info
	options         Options
	stages          []Stage
	load            time.Duration
	// graphs is set if runs launch graphs; otherwise whyNot says why they do not.
	graphs bool
	whyNot string
	// baseline is the device's free memory in bytes before the engine took any.
	baseline int64

	mu      sync.Mutex
	closed  bool
	thread  *thread
	session *C.session
	// onHost are the inputs that nodes on the host read.
	onHost []bool
	// from and to are pinned memory, in and out the device's. They hold capacity bytes.
	from, to          unsafe.Pointer
	in, out           C.address
	inBytes, outBytes int
	buckets           []int
	batches           map[int]*prepared
	times             Times
}

// prepared is a number of rows with its places in memory.
type prepared struct {
	c       *C.batch
	in, out layout
}

// Open loads a model onto the first GPU that the process sees. The error wraps [ErrDevice] if
// that is not possible for another reason than the model.
func Open(o Options) (e *Engine, err error) {
	if o.MaxBatch < 1 {
		return nil, fmt.Errorf("the maximum batch is %d; it must be at least 1", o.MaxBatch)
	}
	e = &Engine{options: o, batches: map[int]*prepared{}, thread: newThread()}
	start := time.Now()
	e.session = (*C.session)(C.calloc(1, C.sizeof_session))
	restore := keepSignals()
	err = e.thread.do(e.open)
	if err = errors.Join(err, restore()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.load = time.Since(start)
	return e, nil
}

// open is Open on the engine's thread.
func (e *Engine) open() error {
	var version C.int
	device := []func() error{
		e.stage("library", func() error { return load(e.options.Library) }),
		e.stage("driver", openDriver),
		e.stage("device", func() error { return failed(C.device_open(&version)) }),
		e.stage("context", func() error { return failed(C.device_context(e.session)) }),
		e.stage("stream", e.openStream),
		e.stage("provider", e.provide),
	}
	for _, step := range device {
		if err := step(); err != nil {
			return refused(err)
		}
	}
	model := []func() error{
		e.stage("session", e.openSession),
		e.stage("buffers", e.openBuffers),
		e.stage("first run", e.firstRun),
		e.stage("capture", e.capture),
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
		e.stages = append(e.stages, Stage{name, float64(time.Since(start)) / float64(time.Millisecond)})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

func (e *Engine) openStream() error {
	if err := failed(C.stream_open(e.session)); err != nil {
		return err
	}
	free, _, err := e.deviceMemory()
	e.baseline = free
	return err
}

// deviceMemory returns the free and the whole memory of the device in bytes.
func (e *Engine) deviceMemory() (free, total int64, err error) {
	var f, t C.size_t
	err = failed(C.device_memory(e.session, &f, &t))
	return int64(f), int64(t), err
}

// settings configure the provider. Its memory grows by the requested size, because a share of
// a GPU has a fixed amount.
func (o Options) settings() map[string]string {
	s := map[string]string{
		"device_id":              "0",
		"arena_extend_strategy":  "kSameAsRequested",
		"cudnn_conv_algo_search": "HEURISTIC",
		"use_tf32":               "0",
	}
	if o.Exhaustive {
		s["cudnn_conv_algo_search"] = "EXHAUSTIVE"
	}
	if o.TF32 {
		s["use_tf32"] = "1"
	}
	if o.Memory > 0 {
		s["gpu_mem_limit"] = strconv.FormatInt(o.Memory, 10)
	}
	return s
}

func (e *Engine) provide() error {
	if e.options.onHost {
		return failed(C.session_provide(e.session, nil, nil, 0))
	}
	settings := e.options.settings()
	n := len(settings)
	all := C.calloc(C.size_t(2*n), C.size_t(unsafe.Sizeof((*C.char)(nil))))
	defer C.free(all)
	words := unsafe.Slice((**C.char)(all), 2*n)
	i := 0
	for key, value := range settings {
		words[i], words[n+i] = C.CString(key), C.CString(value)
		defer C.free(unsafe.Pointer(words[i]))
		defer C.free(unsafe.Pointer(words[n+i]))
		i++
	}
	return failed(C.session_provide(e.session, &words[0], &words[n], C.size_t(n)))
}

func (e *Engine) openSession() error {
	name := C.CString(e.options.Model)
	defer C.free(unsafe.Pointer(name))
	memory := C.CString("Cuda")
	if e.options.onHost {
		memory = C.CString("Cpu")
	}
	defer C.free(unsafe.Pointer(memory))
	err := failed(C.session_open(e.session, name, memory))
	if err != nil {
		return err
	}
	if e.inputs, err = e.ports("input", 0); err != nil {
		return err
	}
	if e.outputs, err = e.ports("output", 1); err != nil {
		return err
	}
	on := make([]C.int, len(e.inputs))
	if err := failed(C.session_places(e.session, &on[0], C.size_t(len(on)))); err != nil {
		return err
	}
	e.onHost = make([]bool, len(on))
	for i := range on {
		e.onHost[i] = on[i] != 0 && !e.options.onHost
	}
	return nil
}

// Inputs describes the model's inputs in the order in which Run takes them.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs describes the model's outputs in the order in which Run gives them.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// LoadTime returns how long Open took.
func (e *Engine) LoadTime() time.Duration { return e.load }

// Stages returns the parts of Open in their order.
func (e *Engine) Stages() []Stage { return e.stages }

// Graphs reports whether runs launch CUDA graphs.
func (e *Engine) Graphs() bool { return e.graphs }

// WhyNot says why runs launch no graphs, "" if they do.
func (e *Engine) WhyNot() string { return e.whyNot }

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

var errClosed = errors.New("the model is closed")

// Run computes one batch of at most MaxBatch rows. inputs are all of the model's inputs in its
// order, each with rows as its first dimension. The outputs belong to the caller. A run that
// has begun is not interrupted.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := check(e.inputs, rows, inputs); err != nil {
		return nil, err
	}
	if rows > e.options.MaxBatch {
		return nil, fmt.Errorf("%d rows; the engine takes %d at once", rows, e.options.MaxBatch)
	}
	if e.graphs {
		return e.run(e.batches[bucketFor(e.buckets, rows)], rows, inputs)
	}
	var outputs []tensor.Tensor
	err := e.thread.do(func() (err error) {
		outputs, err = e.runPlain(rows, inputs)
		return err
	})
	return outputs, err
}

// Close frees the model, after a run in progress has ended.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	err := e.thread.do(func() error {
		e.release()
		C.session_close(e.session)
		return nil
	})
	e.thread.end()
	C.free(unsafe.Pointer(e.session))
	return err
}
