package shares

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/measuring"
)

// EngineName is the engine of profiles on a GPU.
func EngineName() string { return onnxruntime.CUDAName() }

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

// Holding is the memory of a GPU that is in use, in bytes.
type Holding struct {
	// Own is what one process holds, with its context, valid if OwnKnown is set. The driver does not
	// know it before the process has used the GPU.
	Own      int64
	OwnKnown bool
	// All is what all processes hold, valid if AllKnown is set.
	All      int64
	AllKnown bool
}

// Held returns a function that reads how much of a GPU's memory the process with a pid and all
// processes hold. MPS clients are counted, too. Some virtual machines and containers hide
// processes' memory or have other pids.
func Held(library nvml.Interface, uuid string, pid int) func() Holding {
	return func() (h Holding) {
		if library.Init() != nvml.SUCCESS {
			return h
		}
		defer library.Shutdown()
		d, r := library.DeviceGetHandleByUUID(uuid)
		if r != nvml.SUCCESS {
			return h
		}
		memory, r := d.GetMemoryInfo()
		h.All, h.AllKnown = int64(memory.Used), r == nvml.SUCCESS
		for _, list := range []func() ([]nvml.ProcessInfo, nvml.Return){d.GetComputeRunningProcesses, d.GetMPSComputeRunningProcesses} {
			all, r := list()
			if r != nvml.SUCCESS {
				continue
			}
			// A client may be in both lists.
			if at := slices.IndexFunc(all, func(p nvml.ProcessInfo) bool { return int(p.Pid) == pid }); at >= 0 && all[at].UsedGpuMemory <= math.MaxInt64 {
				h.Own, h.OwnKnown = max(h.Own, int64(all[at].UsedGpuMemory)), true
			}
		}
		return h
	}
}
