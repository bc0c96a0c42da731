package shares

import (
	"context"
	"errors"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/measuring"
)

// EngineName is the engine of profiles on a GPU.
func EngineName() string { return onnxruntime.Name() + " cuda" }

// engine is the engine of instances on a GPU.
type engine struct{ *cuda.Engine }

// Repeat implements [measuring.DeviceEngine].
func (e engine) Repeat(ctx context.Context) (profiler.DeviceTimes, error) {
	t, err := e.Engine.Repeat(ctx)
	return profiler.DeviceTimes(t), err
}

// Times implements [Engine].
func (e engine) Times() profiler.DeviceTimes { return profiler.DeviceTimes(e.Engine.Times()) }

// Note implements [Engine].
func (e engine) Note() string {
	if e.Graphs() {
		return ""
	}
	return "runs launch no CUDA graph: " + e.WhyNot()
}

// OpenOperator opens a model whose batches are prepared one at a time.
func OpenOperator(file string, maxBatch int) (measuring.DeviceEngine, error) {
	e, err := cuda.Open(cuda.Options{Model: file, MaxBatch: maxBatch, Single: true})
	if err != nil {
		return nil, err
	}
	return engine{e}, nil
}

// OpenEngine opens a model for batches of these sizes on the first GPU that the process sees. The error wraps
// [cuda.ErrDevice] if the library or the driver cannot use it.
func OpenEngine(file string, batches []int, plain bool) (Engine, error) {
	e, err := cuda.Open(cuda.Options{Model: file, MaxBatch: slices.Max(batches), Batches: batches, Plain: plain})
	if err != nil {
		return nil, err
	}
	// Until then runs take longer. The parent ends this process if it must.
	if err := e.Wait(context.Background()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return engine{e}, nil
}

// Held returns a function that reads how much of a GPU's memory all processes hold, in bytes.
// It is false if the driver does not say.
func Held(library nvml.Interface, uuid string) func() (int64, bool) {
	return func() (int64, bool) {
		if library.Init() != nvml.SUCCESS {
			return 0, false
		}
		defer library.Shutdown()
		d, r := library.DeviceGetHandleByUUID(uuid)
		if r != nvml.SUCCESS {
			return 0, false
		}
		memory, r := d.GetMemoryInfo()
		return int64(memory.Used), r == nvml.SUCCESS
	}
}
