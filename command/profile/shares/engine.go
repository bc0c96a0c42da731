package shares

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler"
)

// EngineName is the engine of profiles on a GPU.
func EngineName() string { return onnxruntime.Name() + " cuda" }

// provider is ONNX Runtime with its CUDA provider.
type provider struct{ *onnxruntime.Engine }

func (provider) Times() profiler.DeviceTimes { return profiler.DeviceTimes{} }
func (provider) Memory() (int64, error)      { return 0, nil }
func (provider) Note() string                { return "" }

// OpenEngine opens a model on the first GPU that the process sees. The error wraps
// [onnxruntime.ErrDevice] if the library or the driver cannot use it.
func OpenEngine(file string, _ int, _ bool) (Engine, error) {
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1, Device: onnxruntime.CUDA})
	if err != nil {
		return nil, err
	}
	return provider{e}, nil
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
